//! Users of one agent: ids of their threads and runs on the agent's side, and the signed header that names them.

use std::sync::{Arc, Mutex};

use agentwire_gateway::{
    agent::Agent,
    auth::{Secret, UpstreamIdentity},
    settings::AgentSettings,
    upstream::{
        Adk, AdkOptions, AgUi, AgUiOptions, Events, EventsOptions, Exec, ExecOptions, Hai, HaiOptions,
        LangGraph, LangGraphOptions,
    },
};
use agentwire_store::ThreadIds;
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use reqwest::Method;
use ring::{
    hmac,
    signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey},
};
use serde_json::{Value, json};
use tokio::time::Duration;

use super::{
    gateway::TestGateway,
    scoped_id,
    server::{ReceivedRequest, Server, Step, events, response},
};

const UUID: &str = "01a1e0b9-8f11-7229-ac8e-dab6be118164";

/// An AG-UI server that answers with the ids that it got.
async fn ag_ui_server() -> Server {
    Server::new(|request| {
        let body = request.json();
        let (thread, run) = (&body["threadId"], &body["runId"]);
        let mut started = json!({"type": "RUN_STARTED", "threadId": thread, "runId": run});
        if body["messages"].is_array() {
            started["input"] = body.clone();
        }
        let stream = [
            started,
            json!({"type": "TEXT_MESSAGE_CHUNK", "messageId": "a", "role": "assistant", "delta": "hi"}),
            json!({"type": "RUN_FINISHED", "threadId": thread, "runId": run}),
        ];
        events(stream.map(|event| format!("data: {event}\n\n")).concat().as_bytes())
    })
    .await
}

async fn hai_server() -> Server {
    let event = |kind| json!({"type": kind, "messageId": "m", "role": "assistant", "timestamp": 1});
    let said = json!({"type": "BUSINESS_DATA_CONTENT", "messageId": "m", "delta": {"output": {"type": "text", "content": "hi"}}});
    let stream = [
        event("RUN_STARTED"),
        json!({"type": "BUSINESS_DATA_START", "messageId": "m", "role": "assistant"}),
        said,
        json!({"type": "BUSINESS_DATA_END", "messageId": "m"}),
        event("RUN_FINISHED"),
    ];
    Server::always(events(stream.map(|event| format!("data: {event}\n\n")).concat().as_bytes())).await
}

/// The ids in the requests of a server.
fn received(server: &Server) -> Vec<(String, String)> {
    let ids = |request: &ReceivedRequest| {
        let body = request.json();
        (body["threadId"].as_str().unwrap().to_owned(), body["runId"].as_str().unwrap().to_owned())
    };
    server.requests().iter().map(ids).collect()
}

/// The kinds that get the client's request, each with its server.
async fn kinds() -> Vec<(&'static str, Server, Arc<dyn Agent>)> {
    let (ag_ui, hai, posted) = (ag_ui_server().await, hai_server().await, ag_ui_server().await);
    let agents: [(_, Arc<dyn Agent>); 3] = [
        ("ag-ui", Arc::new(AgUi::new(AgUiOptions { url: ag_ui.url.clone(), ..Default::default() }).unwrap())),
        ("hai", Arc::new(Hai::new(HaiOptions { url: hai.url.clone(), ..Default::default() }).unwrap())),
        (
            "events",
            Arc::new(
                Events::new(EventsOptions {
                    url: format!("{}/{{{{thread}}}}", posted.url),
                    body: Some(json!({"threadId": "{{thread}}", "runId": "{{run}}"})),
                    ..Default::default()
                })
                .unwrap(),
            ),
        ),
    ];
    agents
        .into_iter()
        .zip([ag_ui, hai, posted])
        .map(|((kind, agent), server)| (kind, server, agent))
        .collect()
}

fn has_ids(received: &[Value], thread: &str, run: &str) {
    for kind in ["RUN_STARTED", "RUN_FINISHED"] {
        let event = received.iter().find(|event| event["type"] == kind);
        let event = event.unwrap_or_else(|| panic!("no {kind} in {received:#?}"));
        assert_eq!((&event["threadId"], &event["runId"]), (&json!(thread), &json!(run)), "{event}");
    }
}

#[tokio::test]
async fn threads_of_two_users_are_two_threads_for_the_agent() {
    for (kind, server, agent) in kinds().await {
        let gateway = TestGateway::sharing(agent, AgentSettings::default()).await;
        for user in ["ada", "eve", "default-user"] {
            has_ids(&gateway.run(user, "t1", "r1").await, "t1", "r1");
            has_ids(&gateway.run(user, "t1", "r2").await, "t1", "r2");
        }
        let ids = received(&server);
        let of = |user: &str| scoped_id("default", user, "t1");
        let threads: Vec<_> = ids.iter().map(|(thread, _)| thread.clone()).collect();
        let users = ["ada", "ada", "eve", "eve", "default-user", "default-user"];
        assert_eq!(threads, users.map(of), "{kind}");
        let mut runs: Vec<_> = ids.iter().map(|(_, run)| run).collect();
        runs.sort();
        runs.dedup();
        assert_eq!(runs.len(), 6, "{kind}: {ids:?}");
        if kind == "events" {
            assert!(server.requests()[0].line().contains(&of("ada")));
        }
    }
}

#[tokio::test]
async fn a_single_user_and_raw_ids_are_not_changed() {
    for (kind, server, agent) in kinds().await {
        let single = TestGateway::single_user(agent.clone()).await;
        has_ids(&single.run("nobody", "t1", "r1").await, "t1", "r1");
        let raw = AgentSettings::default().thread_ids(Some(ThreadIds::Raw));
        let gateway = TestGateway::sharing(agent, raw).await;
        gateway.run("ada", "t1", "r2").await;
        gateway.run("eve", "t1", "r3").await;
        let runs = ["r1", "r2", "r3"].map(|run| ("t1".to_owned(), run.to_owned()));
        assert_eq!(received(&server), runs, "{kind}");
    }
    // Chosen for a single user too.
    let server = ag_ui_server().await;
    let agent = AgUi::new(AgUiOptions { url: server.url.clone(), ..Default::default() }).unwrap();
    let scoped = AgentSettings::default().thread_ids(Some(ThreadIds::Scoped));
    let gateway = TestGateway::single_user_with(Arc::new(agent), scoped).await;
    has_ids(&gateway.run("nobody", "t1", "r1").await, "t1", "r1");
    assert_eq!(received(&server)[0].0, scoped_id("default", "default-user", "t1"));
}

#[tokio::test]
async fn a_command_gets_scoped_ids_and_the_identity() {
    let script = r#"read -r line; echo "$line" >> "$FILE"; echo "$AGENTWIRE_IDENTITY" >> "$FILE"
        echo '{"type":"RUN_STARTED","threadId":"t","runId":"r"}'; echo '{"type":"RUN_FINISHED","threadId":"t","runId":"r"}'"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines");
    let agent = Exec::new(ExecOptions {
        command: vec!["sh".into(), "-c".into(), script.into()],
        env: vec![format!("FILE={}", file.display())],
        ..ExecOptions::default()
    });
    let identity = UpstreamIdentity::new(Secret::Value(b"shared".to_vec()), Duration::from_secs(60));
    let settings = AgentSettings::default().upstream_identity(Some(identity));
    let gateway = TestGateway::with(agent.unwrap(), settings).await;
    has_ids(&gateway.run("ada", "t1", "r1").await, "t1", "r1");
    gateway.run("eve", "t1", "r1").await;
    let lines = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = lines.lines().collect();
    for (at, user) in [(0, "ada"), (2, "eve")] {
        let input: Value = serde_json::from_str(lines[at]).unwrap();
        assert_eq!(input["threadId"], scoped_id("default", user, "t1"));
        let claims = claims(lines[at + 1]);
        assert_eq!((&claims["user"], &claims["thread"]), (&json!(user), &input["threadId"]));
        assert_eq!(claims["run"], input["runId"]);
    }
}

/// A LangGraph or ADK server that has threads by path.
async fn thread_server() -> (Server, Arc<Mutex<Vec<String>>>) {
    let state = super::fixture("langgraph_plain_state.json");
    let session = super::fixture("adk_session.json");
    let threads = Arc::new(Mutex::new(Vec::<String>::new()));
    let held = threads.clone();
    let server = Server::new(move |request: &ReceivedRequest| -> Vec<Step> {
        let (line, mut held) = (request.line(), held.lock().unwrap());
        let path = line.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
        let is_held = held.iter().any(|thread| path.contains(thread.as_str()));
        let is_langgraph = path.starts_with("/threads/");
        match line.split(' ').next() {
            Some("GET") if is_held && is_langgraph => response("200 OK", "application/json", &state),
            Some("GET") if is_held => response("200 OK", "application/json", &session),
            Some("DELETE") if is_held => {
                held.retain(|thread| !path.contains(thread.as_str()));
                response("200 OK", "application/json", b"null")
            }
            _ => response("404 Not Found", "application/json", b"{}"),
        }
    })
    .await;
    (server, threads)
}

/// Issue 15, A5: a request without a name, and the computed id of another user's thread.
#[tokio::test]
async fn a_request_without_a_name_does_not_reach_the_threads_of_others() {
    let (server, threads) = thread_server().await;
    let url = server.url.clone();
    let graph = LangGraph::new(LangGraphOptions {
        url: url.clone(),
        graph: "plain".into(),
        ..LangGraphOptions::default()
    });
    let shared = AdkOptions { url, app: "demo".into(), user: Some("one".into()), ..AdkOptions::default() };
    let agents: [Arc<dyn Agent>; 2] = [Arc::new(graph.unwrap()), Arc::new(Adk::new(shared).unwrap())];
    for agent in agents {
        let gateway = TestGateway::sharing(agent, AgentSettings::default()).await;
        let of_ada = scoped_id("default", "ada", UUID);
        *threads.lock().unwrap() = vec![of_ada.clone()];
        let ask = async |method: Method, path: String, user: Option<&str>| {
            let mut request = gateway.request(method, &path);
            if let Some(user) = user {
                request = request.header("x-user-id", user);
            }
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        };
        let (status, body) = ask(Method::GET, format!("/message_snapshot/{UUID}"), Some("ada")).await;
        assert_eq!(status, 200, "the owner has it: {body}");
        for user in [None, Some("default-user"), Some("eve")] {
            for id in [of_ada.as_str(), UUID] {
                for route in ["message_snapshot", "state_snapshot"] {
                    let found = ask(Method::GET, format!("/{route}/{id}"), user).await;
                    assert_eq!(found.0, 404, "{user:?} reads {id}: {}", found.1);
                }
                let deleted = ask(Method::DELETE, format!("/thread/{id}"), user).await;
                assert_eq!(deleted.0, 404, "{user:?} deletes {id}: {}", deleted.1);
            }
        }
        assert_eq!(*threads.lock().unwrap(), [of_ada]);
        assert_eq!(ask(Method::DELETE, format!("/thread/{UUID}"), Some("ada")).await.0, 200);
        assert!(threads.lock().unwrap().is_empty());
    }
}

/// An upgrade, and a change of the setting, lose nobody's memory.
#[tokio::test]
async fn a_thread_keeps_the_ids_that_it_was_begun_with() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let server = ag_ui_server().await;
    let with = async |ids: Option<ThreadIds>| {
        let agent = AgUi::new(AgUiOptions { url: server.url.clone(), ..Default::default() }).unwrap();
        let settings = AgentSettings::default().thread_ids(ids);
        TestGateway::at(&format!("sqlite:{}", path.display()), Arc::new(agent), settings).await
    };
    let raw = with(Some(ThreadIds::Raw)).await;
    raw.run("ada", "begun raw", "r1").await;
    raw.run("ada", "of an earlier version", "r2").await;
    drop(raw);
    rusqlite_null(&path, "of an earlier version");
    let scoped = with(None).await;
    scoped.run("ada", "begun raw", "r3").await;
    scoped.run("ada", "of an earlier version", "r4").await;
    has_ids(&scoped.run("ada", "begun scoped", "r5").await, "begun scoped", "r5");
    drop(scoped);
    let raw = with(Some(ThreadIds::Raw)).await;
    has_ids(&raw.run("ada", "begun scoped", "r6").await, "begun scoped", "r6");
    let threads: Vec<_> = received(&server).into_iter().map(|(thread, _)| thread).collect();
    let of_ada = scoped_id("default", "ada", "begun scoped");
    let earlier = "of an earlier version";
    assert_eq!(threads, ["begun raw", earlier, "begun raw", earlier, &of_ada, &of_ada]);
}

/// Makes a thread one of an earlier version.
fn rusqlite_null(path: &std::path::Path, thread: &str) {
    let output = std::process::Command::new("python3")
        .args(["-c", "import sqlite3, sys; d = sqlite3.connect(sys.argv[1], timeout=30); d.execute('UPDATE threads SET thread_ids = NULL WHERE thread = ?', sys.argv[2:]); d.commit()"])
        .arg(path)
        .arg(thread)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).expect(token);
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

#[tokio::test]
async fn the_identity_header_is_signed_and_names_who_asks() {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).unwrap();
    let of_file = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(pkcs8.as_ref())
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    std::fs::write(&file, pem).unwrap();
    for (algorithm, secret) in
        [("HS256", Secret::Value(b"shared key".to_vec())), ("EdDSA", Secret::File(file))]
    {
        let server = ag_ui_server().await;
        let agent = AgUi::new(AgUiOptions { url: server.url.clone(), ..Default::default() }).unwrap();
        let identity = UpstreamIdentity::new(secret, Duration::from_secs(60));
        let settings = AgentSettings::default()
            .upstream_identity(Some(identity))
            .forward_headers(vec!["agentwire-identity".into(), "x-note".into()]);
        let gateway = TestGateway::with(agent, settings).await;
        let body = json!({"threadId": "t1", "runId": "r1", "protocolVersion": "1.0", "state": {}, "tools": [], "context": [],
            "forwardedProps": {}, "messages": [{"id": "m", "role": "user", "content": "hi"}]});
        let sent = gateway.request(Method::POST, "/").header("x-user-id", "ada").header("x-tenant", "acme");
        let sent = sent.header("agentwire-identity", "forged").header("x-note", "kept").json(&body);
        assert_eq!(sent.send().await.unwrap().status(), 200);
        let requests = server.requests();
        let request = &requests[0];
        assert_eq!(request.header("x-note"), Some("kept"));
        let lines =
            request.head.lines().filter(|line| line.to_ascii_lowercase().starts_with("agentwire-identity:"));
        assert_eq!(lines.count(), 1);
        let token = request.header("agentwire-identity").unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let header: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(signed.split('.').next().unwrap()).unwrap())
                .unwrap();
        assert_eq!(header["alg"], algorithm);
        match algorithm {
            "HS256" => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, b"shared key");
                hmac::verify(&key, signed.as_bytes(), &signature).unwrap();
            }
            _ => UnparsedPublicKey::new(&ED25519, of_file.public_key().as_ref())
                .verify(signed.as_bytes(), &signature)
                .unwrap(),
        }
        let (claims, got) = (claims(token), request.json());
        assert_eq!((&claims["tenant"], &claims["user"]), (&json!("acme"), &json!("ada")));
        assert_eq!(claims["agent"], "demo");
        assert_eq!((&claims["thread"], &claims["run"]), (&got["threadId"], &got["runId"]));
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 60);
    }
}

#[tokio::test]
async fn a_forged_identity_is_not_passed_on_without_a_key_either() {
    let server = ag_ui_server().await;
    let agent = AgUi::new(AgUiOptions { url: server.url.clone(), ..Default::default() }).unwrap();
    let settings = AgentSettings::default().forward_headers(vec!["agentwire-identity".into()]);
    let gateway = TestGateway::with(agent, settings).await;
    let body = json!({"threadId": "t1", "runId": "r1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "m", "role": "user", "content": "hi"}]});
    let sent = gateway.request(Method::POST, "/").header("agentwire-identity", "forged").json(&body);
    assert_eq!(sent.send().await.unwrap().status(), 200);
    assert_eq!(server.requests()[0].header("agentwire-identity"), None);
}

#[tokio::test]
async fn a_key_that_cannot_sign_fails_the_run() {
    let server = ag_ui_server().await;
    let agent = AgUi::new(AgUiOptions { url: server.url.clone(), ..Default::default() }).unwrap();
    let missing = Secret::File("/nonexistent/key".into());
    let identity = UpstreamIdentity::new(missing, Duration::from_secs(60));
    let settings = AgentSettings::default().upstream_identity(Some(identity));
    let received = TestGateway::with(agent, settings).await.run("ada", "t1", "r1").await;
    assert_eq!(received.last().unwrap()["type"], "RUN_ERROR");
    assert!(server.requests().is_empty(), "nothing is sent without it");
}
