//! T8: approvals by others, four eyes, votes, edits and expiry.

use std::{sync::Arc, time::Duration};

use agentwire_gateway::{
    agent::Demo,
    settings::{AgentSettings, ApprovalRule, Approver, AuthMode},
};
use agentwire_store::Store;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    keys::{key, with_keys},
    ok, refusal,
};
use crate::support::*;

fn input(thread: &str, run: &str) -> Value {
    let mut body = Server::input(thread, run, "please confirm");
    body["tools"] = json!([{"name": "confirmAction", "description": "asks", "parameters": {"type": "object", "properties": {"action": {"type": "string"}}}}]);
    body
}

fn rule(change: impl FnOnce(&mut ApprovalRule)) -> ApprovalRule {
    let mut rule = ApprovalRule::from("confirm*");
    rule.approvers = vec![Approver::Role("finance".into())];
    change(&mut rule);
    rule
}

async fn server(store: &Arc<dyn Store>, rule: ApprovalRule) -> Server {
    plan(Arc::new(Demo::without_pauses()))
        .agent(|agent| agent.approve = vec![rule])
        .and("other", AgentSettings::default(), Arc::new(Demo::without_pauses()))
        .set(|settings| settings.auth = with_keys())
        .on(store)
        .await
}

/// Starts a run that asks, as the holder of a key; returns the end of its stream.
async fn asked(server: &Server, credential: &str, thread: &str, run: &str) -> Value {
    let stream = Stream::of(server.post("/", &input(thread, run)).bearer_auth(credential)).await.rest().await;
    assert_valid(&stream);
    let end = stream.last().expect("an end").json();
    assert_eq!(end["outcome"]["type"], "interrupt", "{end}");
    end
}

async fn list(server: &Server, credential: &str) -> Vec<Value> {
    let list = ok(server.ask(Method::GET, "/approvals").bearer_auth(credential)).await;
    list.as_array().expect("a list").clone()
}

async fn vote(server: &Server, credential: &str, approval: &Value, more: Value) -> (u16, Value) {
    let mut body = json!({"decision": "approve", "argumentsHash": approval["argumentsHash"]});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let path = format!("/approvals/{}", approval["id"].as_str().expect("an id"));
    let (status, body) = answer(server.post(&path, &body).bearer_auth(credential)).await;
    (status.as_u16(), body)
}

fn code(voted: &(u16, Value)) -> (u16, &str) {
    (voted.0, voted.1["error"]["code"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn t8_only_approvers_decide_and_the_thread_does_not() {
    let backend = Backend::sqlite().await;
    let server = server(&backend.store, rule(|rule| rule.four_eyes = true)).await;
    let all = &["agents:*:*"][..];
    let (ada, _) = key(&backend.store, "ada", all, &[]).await;
    let (boss, _) = key(&backend.store, "boss", all, &["finance"]).await;
    let (peer, _) = key(&backend.store, "peer", all, &[]).await;
    let (elsewhere, _) = key(&backend.store, "boss", &["agents:other:*"], &["finance"]).await;
    let (unscoped, _) = key(&backend.store, "boss", &["agents:*:run"], &["finance"]).await;
    // The requester, with the role: another credential of the same person.
    let (ada_finance, _) = key(&backend.store, "ada", all, &["finance"]).await;
    let end = asked(&server, &ada, "t", "r1").await;
    let question = end["outcome"]["interrupts"][0]["id"].clone();

    let shown = list(&server, &boss).await;
    let [approval] = &*shown else { panic!("{shown:?}") };
    for (member, expected) in [
        ("thread", json!("t")),
        ("run", json!("r1")),
        ("agent", json!("demo")),
        ("tool", json!("confirmAction")),
        ("requester", json!("ada")),
        ("votes", json!(0)),
        ("needed", json!(1)),
        ("expiresAt", Value::Null),
    ] {
        assert_eq!(approval[member], expected, "{member}");
    }
    assert_eq!(approval["arguments"]["action"], "Show a demo");
    let hash = approval["argumentsHash"].as_str().expect("a hash");
    assert!(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
    for nobody in [&ada, &peer, &elsewhere, &ada_finance] {
        assert_eq!(list(&server, nobody).await, Vec::<Value>::new());
    }
    assert_eq!(refusal(server.ask(Method::GET, "/approvals").bearer_auth(&unscoped)).await.1, "FORBIDDEN");

    assert_eq!(code(&vote(&server, &peer, approval, json!({})).await), (403, "NOT_AN_APPROVER"));
    assert_eq!(code(&vote(&server, &ada, approval, json!({})).await), (403, "NOT_AN_APPROVER"));
    assert_eq!(code(&vote(&server, &ada_finance, approval, json!({})).await), (403, "SAME_PERSON"));
    assert_eq!(code(&vote(&server, &elsewhere, approval, json!({})).await), (404, "UNKNOWN_APPROVAL"));
    assert_eq!(
        code(&vote(&server, &boss, approval, json!({"argumentsHash": "0".repeat(64)})).await),
        (409, "ARGUMENTS_CHANGED")
    );
    for bad in [
        json!({"decision": "maybe"}),
        json!({"decision": true}),
        json!({"argumentsHash": 1}),
        json!({"editedArgs": 1}),
        json!({"reason": 1}),
    ] {
        assert_eq!(code(&vote(&server, &boss, approval, bad).await), (400, "BAD_REQUEST"));
    }
    for id in ["x", "", "AAAA", "WzEsMiwzLDQsNV0"] {
        let unknown = json!({"id": id, "argumentsHash": hash});
        assert_eq!(vote(&server, &boss, &unknown, json!({})).await.0, 404, "{id}");
    }
    // The thread's own routes refuse, for everybody.
    for credential in [&ada, &ada_finance] {
        for payload in [json!({"approved": true}), json!({"approved": false})] {
            let mut body = input("t", "r2");
            body["messages"] = json!([]);
            body["resume"] = json!([{"interruptId": question, "status": "resolved", "payload": payload}]);
            assert_eq!(refusal(server.post("/", &body).bearer_auth(credential)).await.1, "NOT_AN_APPROVER");
        }
    }

    let done = vote(&server, &boss, approval, json!({})).await;
    assert_eq!(
        (done.0, &done.1["status"], &done.1["votes"], &done.1["needed"]),
        (200, &json!("approved"), &json!(1), &json!(1))
    );
    let run = done.1["runId"].as_str().expect("a run").to_owned();
    wait_until("the run of the yes", async || {
        let run = server.ask(Method::GET, &format!("/runs/{run}")).bearer_auth(&ada);
        answer(run).await.1["status"] == "waiting"
    })
    .await;
    let pending = ok(server.ask(Method::GET, "/threads/t/pending").bearer_auth(&ada)).await;
    assert_eq!(pending[0]["kind"], "frontend-tool", "the front end may run the call now: {pending}");
    assert_eq!(list(&server, &boss).await.len(), 0);
    assert_eq!(code(&vote(&server, &boss, approval, json!({})).await), (404, "UNKNOWN_APPROVAL"));
}

#[tokio::test]
async fn t8_a_no_ends_it_and_reaches_the_agent() {
    for backend in Backend::each().await {
        // A memory store keeps no keys.
        let is_memory = backend.address.starts_with("memory");
        if is_memory {
            continue;
        }
        let server = server(&backend.store, rule(|rule| rule.votes = 2)).await;
        let (ada, _) = key(&backend.store, "ada", &["*"], &["finance"]).await;
        let (boss, _) = key(&backend.store, "boss", &["*"], &["finance"]).await;
        asked(&server, &ada, "t", "r1").await;
        let approval = list(&server, &ada).await.remove(0);
        let voted = vote(&server, &ada, &approval, json!({})).await;
        assert_eq!(
            (&voted.1["status"], &voted.1["votes"], &voted.1["needed"]),
            (&json!("pending"), &json!(1), &json!(2))
        );
        let again = vote(&server, &ada, &approval, json!({})).await;
        assert_eq!(again.1["votes"], 1, "one person has one vote");
        let voted = vote(&server, &boss, &approval, json!({"decision": "deny", "reason": "too dear"})).await;
        assert_eq!(voted.1["status"], "denied");
        let run = voted.1["runId"].as_str().expect("a run");
        let followed = Stream::of(server.ask(Method::GET, &format!("/runs/{run}/stream")).bearer_auth(&ada))
            .await
            .rest()
            .await;
        let result = followed.iter().map(Frame::json).find(|event| event["type"] == "TOOL_CALL_RESULT");
        assert_eq!(result.expect("a result")["content"], "too dear");
    }
}

#[tokio::test]
async fn t8_an_edit_voids_earlier_votes() {
    let backend = Backend::sqlite().await;
    let server = server(&backend.store, rule(|rule| rule.votes = 2)).await;
    let mut keys = Vec::new();
    for user in ["ada", "bob", "cyd"] {
        keys.push(key(&backend.store, user, &["*"], &["finance"]).await.0);
    }
    asked(&server, &keys[0], "t", "r1").await;
    let approval = list(&server, &keys[0]).await.remove(0);
    assert_eq!(vote(&server, &keys[0], &approval, json!({})).await.1["votes"], 1);
    let wrong = json!({"editedArgs": {"action": 7}});
    assert_eq!(code(&vote(&server, &keys[1], &approval, wrong).await).1, "SCHEMA_MISMATCH");
    let edit = json!({"editedArgs": {"action": "Show less"}});
    let voted = vote(&server, &keys[1], &approval, edit).await;
    assert_eq!((&voted.1["status"], &voted.1["votes"]), (&json!("pending"), &json!(1)));
    assert_eq!(code(&vote(&server, &keys[2], &approval, json!({})).await), (409, "ARGUMENTS_CHANGED"));
    let edited = list(&server, &keys[2]).await.remove(0);
    assert_eq!(edited["arguments"], json!({"action": "Show less"}));
    assert_ne!(edited["argumentsHash"], approval["argumentsHash"]);
    assert_eq!(edited["id"], approval["id"]);
    let voted = vote(&server, &keys[2], &edited, json!({})).await;
    assert_eq!(voted.1["status"], "approved");
    wait_until("the edited call", async || {
        let pending = server.ask(Method::GET, "/threads/t/pending").bearer_auth(&keys[0]);
        answer(pending).await.1[0]["arguments"] == json!({"action": "Show less"})
    })
    .await;
}

#[tokio::test]
async fn t8_votes_at_once_are_all_counted() {
    let backend = Backend::sqlite().await;
    let server = server(&backend.store, rule(|rule| rule.votes = 5)).await;
    let mut keys = Vec::new();
    for at in 0..5 {
        keys.push(key(&backend.store, &format!("u{at}"), &["*"], &["finance"]).await.0);
    }
    asked(&server, &keys[0], "t", "r1").await;
    let approval = list(&server, &keys[0]).await.remove(0);
    let votes = keys.iter().map(|key| vote(&server, key, &approval, json!({})));
    let votes = futures_util::future::join_all(votes).await;
    let approved = votes.iter().filter(|vote| vote.1["status"] == "approved").count();
    assert_eq!(approved, 1, "{votes:?}");
    assert!(votes.iter().all(|vote| vote.0 == 200), "{votes:?}");
}

#[tokio::test]
async fn t8_an_approval_expires() {
    let clock = Arc::new(agentwire_store::ManualClock::at(agentwire_store::Time(now() * 1000)));
    let backend = Backend::sqlite_at(clock.clone()).await;
    let server = server(&backend.store, rule(|rule| rule.expires = Some(Duration::from_secs(3600)))).await;
    let (ada, _) = key(&backend.store, "ada", &["*"], &["finance"]).await;
    asked(&server, &ada, "t", "r1").await;
    let approval = list(&server, &ada).await.remove(0);
    assert!(approval["expiresAt"].is_string(), "{approval}");
    clock.advance(Duration::from_secs(3600));
    assert_eq!(list(&server, &ada).await.len(), 0);
    assert_eq!(code(&vote(&server, &ada, &approval, json!({})).await).1, "INTERRUPT_EXPIRED");
}

#[tokio::test]
async fn approvals_of_another_tenant_are_unknown() {
    let backend = Backend::sqlite().await;
    let issuer = Issuer::new();
    let mut auth = with_keys();
    auth.jwt = vec![issuer.settings.clone()];
    let server = plan(Arc::new(Demo::without_pauses()))
        .agent(|agent| agent.approve = vec![rule(|_| {})])
        .set(|settings| settings.auth = auth)
        .on(&backend.store)
        .await;
    let finance = json!({"roles": ["finance"]});
    let (ada, _) = key(&backend.store, "ada", &["*"], &["finance"]).await;
    let foreign = issuer.token_with("boss", "*", &[("org", json!("other")), ("realm", finance)]);
    asked(&server, &ada, "t", "r1").await;
    assert_eq!(list(&server, &foreign).await.len(), 0);
    let approval = list(&server, &ada).await.remove(0);
    assert_eq!(code(&vote(&server, &foreign, &approval, json!({})).await), (404, "UNKNOWN_APPROVAL"));
}

/// On a laptop: the requester decides, by the routes of approvals or by the thread's own.
#[tokio::test]
async fn without_authentication_the_user_decides() {
    for backend in Backend::each().await {
        let server = plan(Arc::new(Demo::without_pauses()))
            .agent(|agent| agent.approve = vec!["confirm*".into()])
            .on(&backend.store)
            .await;
        assert_eq!(AuthMode::default(), AuthMode::Anonymous);
        for thread in ["t1", "t2"] {
            let frames = Stream::of(server.post("/", &input(thread, thread))).await.rest().await;
            assert_valid(&frames);
        }
        let shown = ok(server.ask(Method::GET, "/approvals")).await;
        assert_eq!(shown.as_array().map(Vec::len), Some(2));
        let body = json!({"decision": "approve", "argumentsHash": shown[0]["argumentsHash"]});
        let path = format!("/approvals/{}", shown[0]["id"].as_str().expect("an id"));
        assert_eq!(ok(server.post(&path, &body)).await["status"], "approved");
        let left = ok(server.ask(Method::GET, "/approvals")).await;
        assert_eq!(left.as_array().map(Vec::len), Some(1));
        assert_eq!(left[0]["thread"], "t2");
        let question = ok(server.ask(Method::GET, "/threads/t2/pending")).await[0]["id"].clone();
        let mut own = input("t2", "r2");
        own["resume"] =
            json!([{"interruptId": question, "status": "resolved", "payload": {"approved": true}}]);
        assert_valid(&Stream::of(server.post("/", &own)).await.rest().await);
        assert_eq!(ok(server.ask(Method::GET, "/approvals")).await, json!([]));
    }
}
