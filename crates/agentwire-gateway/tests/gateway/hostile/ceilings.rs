//! T7 and P6: what one user, tenant or peer can take, and that others do not notice.

use std::{sync::Arc, time::Duration};

use agentwire_core::{
    event::{Body, Event},
    json::{Json, Object},
    patch::{Op, Patch, PatchOp},
};
use agentwire_gateway::{codes, serve_with_admin, settings::*};
use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::support::*;

fn users(settings: &mut Settings) {
    settings.identity = Identity::default()
        .user(IdentityField::header("x-user", None))
        .tenant(IdentityField::header("x-tenant", Some("acme")));
}

fn of(request: RequestBuilder, user: &str) -> RequestBuilder {
    request.header("x-user", user)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t7_a_rate_refuses_one_user_and_no_other() {
    let server = plan(Puppet::new(|input| talk(input, 1)))
        .set(users)
        .set(|settings| settings.limits.user.requests = Some(Rate::new(5, Duration::from_secs(600))))
        .on_memory()
        .await;
    let list = |user: &str| of(server.ask(Method::GET, "/thread/list"), user).send();
    for _ in 0..5 {
        assert_eq!(list("ada").await.expect("a response").status(), 200);
    }
    let refused = list("ada").await.expect("a response");
    assert_eq!(refused.status(), 429);
    let header = |name: &str| refused.headers()[name].to_str().expect("ASCII").to_owned();
    assert_eq!(header("agentwire-error-code"), codes::RATE_LIMITED);
    assert_eq!(header("ratelimit-policy"), r#""user";q=5;w=600"#);
    let wait: u64 = header("retry-after").parse().expect("seconds");
    assert!((1..=120).contains(&wait), "{wait}");
    assert_eq!(header("ratelimit"), format!(r#""user";r=0;t={wait}"#));
    assert_eq!(list("bob").await.expect("a response").status(), 200);
    // Also before a body is read.
    let post = of(server.post("/", &Server::input("t", "r", "x")), "ada");
    assert_eq!(answer(post).await.0, 429);
}

/// A short text can take a hundred times its length once it is parsed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_documents_that_take_much_memory_are_refused() {
    let server = plan(Puppet::new(|input| talk(input, 1))).on_memory().await;
    let send = |method, path: &str, body: String| {
        answer(server.ask(method, path).header("content-type", "application/json").body(body))
    };
    let dense = |unit: &str| format!("[{}0]", unit.repeat(7_000_000 / unit.len()));
    for unit in ["{\"\":0},", "{},", "0,"] {
        let list = dense(unit);
        let patch = format!(r#"[{{"op":"add","path":"/a","value":{list}}}]"#);
        let (status, body) = send(Method::PATCH, "/state/t", patch).await;
        assert_eq!(
            (status.as_u16(), body["error"]["code"].as_str()),
            (413, Some(codes::BODY_TOO_LARGE)),
            "{unit}"
        );
        let state = format!(r#"{{"threadId":"t","runId":"r","messages":[],"state":{{"a":{list}}}}}"#);
        assert_eq!(send(Method::POST, "/", state).await.0, 413, "{unit}");
    }
    // The same characters in a text take no more than the text: the body is read, and its thread is looked for.
    let text = serde_json::to_string(&dense("{},")).expect("a string");
    let patch = format!(r#"[{{"op":"add","path":"/a","value":{text}}}]"#);
    assert_eq!(send(Method::PATCH, "/state/t", patch).await.0, 404);
}

/// The same holds for the documents of an agent: the run ends before they are parsed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_documents_of_an_agent_that_take_much_memory_end_the_run() {
    let list = format!("[{}0]", "{\"\":0},".repeat(1_000_000));
    let sent: Json = Json::parse(&list).expect("JSON");
    let content = Object::from_entries([("a", sent.clone())]);
    let add = PatchOp { op: Op::Add, path: "/a".into(), from: None, value: Some(sent.clone()), extra: None };
    let puppet = Puppet::eager(move |input| {
        let body = match &*input.run {
            "snapshot" => Body::StateSnapshot { snapshot: sent.clone() },
            "delta" => Body::StateDelta { patch: Patch(vec![add.clone()]) },
            "custom" => Body::Custom { name: "x".into(), value: sent.clone() },
            _ => Body::ActivitySnapshot {
                message: "a".into(),
                kind: "x".into(),
                content: content.clone(),
                replace: None,
            },
        };
        let mut events = talk(input, 1);
        events.insert(0, Event::new(body));
        events
    });
    let server = plan(puppet).on_memory().await;
    for run in ["snapshot", "delta", "custom", "activity"] {
        let events = server.run("t", run, "x").await.rest().await;
        let last = events.last().expect("an event");
        assert_eq!(last.kind(), "RUN_ERROR", "{run}");
        assert!(last.data.contains(codes::LIMIT_EXCEEDED), "{run}: {}", last.data);
    }
    assert_eq!(server.json("/state_snapshot/t").await.1["snapshot"], json!({}));
}

/// A patch of the given operations.
fn patch_of(operations: &serde_json::Value) -> Patch {
    agentwire_core::format::ag_ui::patch_from_json(&operations.to_string()).expect("a patch")
}

/// A few bytes double a document: no series of allowed patches makes it larger than one that is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_a_state_does_not_grow_by_many_patches() {
    let dense = json!({"a": vec![json!({}); 150_000]});
    let numbers = Json::parse(&format!("[{}0]", "1e15,".repeat(12_000))).expect("JSON");
    let puppet = Puppet::eager(move |input| {
        let snapshot =
            |value: &serde_json::Value| Event::new(Body::StateSnapshot { snapshot: value.clone().into() });
        let copy = |from: &str, to: &str| patch_of(&json!([{"op": "copy", "from": from, "path": to}]));
        let copies = |count: usize| {
            (0..count).map(|at| Event::new(Body::StateDelta { patch: copy("/a", &format!("/c{at}")) }))
        };
        let mut events = match &*input.run {
            "long" => vec![snapshot(&json!({"a": "x".repeat(40_000)}))],
            "dense" => vec![snapshot(&dense)],
            "numbers" => vec![Event::new(Body::StateSnapshot { snapshot: numbers.clone() })],
            "activity" => {
                let content = Object::from_entries([("a", json!("x".repeat(40_000)).into())]);
                let (message, kind) = ("m-activity", "x");
                let shown = Body::ActivitySnapshot {
                    message: message.into(),
                    kind: kind.into(),
                    content,
                    replace: None,
                };
                let delta = |at| Body::ActivityDelta {
                    message: message.into(),
                    kind: kind.into(),
                    patch: copy("/a", &format!("/c{at}")),
                };
                [shown].into_iter().chain((0..20).map(delta)).map(Event::new).collect()
            }
            _ => Vec::new(),
        };
        if matches!(&*input.run, "long" | "dense") {
            events.extend(copies(20));
        }
        events.extend(talk(input, 1));
        events
    });
    let limits = |settings: &mut Settings| {
        (settings.limits.thread_state, settings.limits.thread_messages) = (100_000, 100_000);
    };
    let small = plan(puppet.clone()).set(limits).on_memory().await;
    let usual = plan(puppet).on_memory().await;
    for (server, run) in [(&small, "long"), (&small, "numbers"), (&small, "activity"), (&usual, "dense")] {
        let last = server.run_to_end(run, run, "x").await.pop().expect("an event").json();
        assert_eq!(
            (&last["type"], &last["code"]),
            (&json!("RUN_ERROR"), &json!(codes::THREAD_TOO_LARGE)),
            "{run}"
        );
    }
    assert!(small.json("/state_snapshot/long").await.1.to_string().len() < 100_200);
    assert!(small.json("/message_snapshot/activity").await.1.to_string().len() < 100_500);

    // The same by a client, with and without a run.
    let patch = async |server: &Server, thread: &str, operations: serde_json::Value| {
        let request = server.ask(Method::PATCH, &format!("/state/{thread}")).json(&operations);
        let (status, body) = answer(request).await;
        (status.as_u16(), body["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    let too_large = (413, codes::THREAD_TOO_LARGE.to_owned());
    let copy = |to: &str| json!([{"op": "copy", "from": "/a", "path": to}]);
    usual.run_to_end("t", "plain", "x").await;
    assert_eq!(
        patch(&usual, "t", json!([{"op": "add", "path": "/a", "value": vec![json!({}); 150_000]}])).await.0,
        200
    );
    assert_eq!(patch(&usual, "t", copy("/c0")).await.0, 200);
    assert_eq!(patch(&usual, "t", copy("/c1")).await, too_large);
    assert_eq!(patch(&usual, "t", json!([{"op": "remove", "path": "/c0"}])).await.0, 200, "it can shrink");
    assert_eq!(patch(&usual, "t", copy("/c1")).await.0, 200);
}

/// A client's patch that does not fit is refused; the run goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_a_patch_that_does_not_fit_does_not_end_the_run() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone()).set(|settings| settings.limits.thread_state = 10_000).on_memory().await;
    let mut stream = server.run("t", "r", "x").await;
    puppet.allow(1);
    stream.take(2).await;
    let add = |name: &str, size: usize| {
        let operations = json!([{"op": "add", "path": format!("/{name}"), "value": "x".repeat(size)}]);
        answer(server.ask(Method::PATCH, "/state/t").json(&operations))
    };
    assert_eq!(add("a", 6_000).await.0, 200);
    let (status, body) = add("b", 6_000).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (413, Some(codes::THREAD_TOO_LARGE)));
    puppet.allow(1000);
    assert_eq!(stream.rest().await.last().expect("an end").kind(), "RUN_FINISHED");
    let (_, state) = server.json("/state_snapshot/t").await;
    assert_eq!(state["snapshot"]["a"].as_str().map(str::len), Some(6_000));
}

/// A state that grew by patches, each of them allowed, beyond what one body may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dense_state_is_served_in_the_next_turn_in_every_protocol() {
    let server = plan(Puppet::eager(|input| talk(input, 1))).on_memory().await;
    answer(server.post("/", &Server::input("t", "r1", "x"))).await;
    let list = format!("[{}0]", "{},".repeat(200_000));
    for name in ["a", "b"] {
        let patch = format!(r#"[{{"op":"add","path":"/{name}","value":{list}}}]"#);
        let request = server.ask(Method::PATCH, "/state/t").header("content-type", "application/json");
        assert_eq!(answer(request.body(patch)).await.0, 200, "{name}");
    }
    answer(server.post("/", &Server::input("t", "r2", "y"))).await;
    for format in ["ag-ui", "hai", "ai-sdk"] {
        let stream = server.ask(Method::GET, &format!("/runs/r2/stream?format={format}")).send().await;
        let text = stream.expect("a response").text().await.expect("a whole stream");
        assert!(text.contains("{},{}"), "{format}: the state is in the stream");
        assert!(
            !text.contains("RUN_ERROR") && !text.contains("\"error\""),
            "{format}: {}",
            &text[text.len() - 300..]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_runs_of_one_user_do_not_refuse_another() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone())
        .set(users)
        .set(|settings| {
            settings.limits.user.runs = Some(2);
            settings.limits.tenant.runs = Some(5);
        })
        .on_memory()
        .await;
    let start = |user: &str, run: &str| of(server.post("/", &Server::input(run, run, "x")), user);
    let mut streams = Vec::new();
    for run in ["a1", "a2"] {
        streams.push(Stream::of(start("ada", run)).await);
        streams.last_mut().expect("a stream").take(1).await;
    }
    let (status, body) = answer(start("ada", "a3")).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (429, Some(codes::QUOTA_EXCEEDED)));
    assert!(body["error"]["message"].as_str().expect("text").contains("`runs`"), "{body}");
    // Joining one's own live run is not a new run.
    let mut joined = Stream::of(start("ada", "a1")).await;
    assert_eq!(joined.status(), 200);
    joined.take(1).await;
    for run in ["b1", "b2"] {
        streams.push(Stream::of(start("bob", run)).await);
        streams.last_mut().expect("a stream").take(1).await;
    }
    streams.push(Stream::of(start("eve", "e1")).await);
    streams.last_mut().expect("a stream").take(1).await;
    let (status, body) = answer(start("eve", "e2")).await;
    assert_eq!(status, 429);
    assert!(body["error"]["message"].as_str().expect("text").contains("tenant"), "{body}");
    let other_tenant = start("eve", "o1").header("x-tenant", "other");
    streams.push(Stream::of(other_tenant).await);
    assert_eq!(streams.last().expect("a stream").status(), 200);
    puppet.allow(1000);
    for mut stream in streams {
        stream.rest().await;
    }
    wait_until("the seats are free", async || answer(start("ada", "a9")).await.0 == 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_readers_of_one_user_are_limited() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone())
        .set(users)
        .set(|settings| settings.limits.user.readers = Some(2))
        .on_memory()
        .await;
    let mut first = Stream::of(of(server.post("/", &Server::input("t", "r", "x")), "ada")).await;
    first.take(1).await;
    let follow = || of(server.ask(Method::GET, "/runs/r/stream"), "ada");
    let mut second = Stream::of(follow()).await;
    second.take(1).await;
    let (status, body) = answer(follow()).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (429, Some(codes::QUOTA_EXCEEDED)));
    // A refused start leaves no run behind.
    let (status, _) = answer(of(server.post("/", &Server::input("t2", "r2", "x")), "ada")).await;
    assert_eq!(status, 429);
    let unknown = answer(of(server.ask(Method::GET, "/runs/r2"), "ada")).await;
    assert_eq!(unknown.0, 404);
    let bob = Stream::of(of(server.post("/", &Server::input("t", "r", "x")), "bob")).await;
    assert_eq!(bob.status(), 200);
    drop(second);
    wait_until("a seat is free", async || {
        let again = Stream::of(follow()).await;
        again.status() == 200
    })
    .await;
    puppet.allow(1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_run_starts_have_a_quota() {
    let puppet = Puppet::new(|input| talk(input, 1));
    puppet.allow(1000);
    let server = plan(puppet)
        .set(users)
        .set(|settings| settings.limits.user.run_starts = Some(Rate::new(2, Duration::from_secs(86_400))))
        .on_memory()
        .await;
    let start = |user: &str, run: &str| answer(of(server.post("/", &Server::input(run, run, "x")), user));
    assert_eq!((start("ada", "1").await.0.as_u16(), start("ada", "2").await.0.as_u16()), (200, 200));
    let (status, body) = start("ada", "3").await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (429, Some(codes::QUOTA_EXCEEDED)));
    assert!(body["error"]["message"].as_str().expect("text").contains("`run_starts`"));
    assert_eq!(start("ada", "1").await.0, 200, "a repeated request starts nothing");
    assert_eq!(start("bob", "1").await.0, 200);
}

/// Limits per user apply only where there is more than one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_user_has_no_quotas() {
    let puppet = Puppet::new(|input| talk(input, 1));
    puppet.allow(1000);
    let server = plan(puppet)
        .set(|settings| settings.limits.user.requests = Some(Rate::new(1, Duration::from_secs(600))))
        .on_memory()
        .await;
    for _ in 0..5 {
        assert_eq!(server.json("/thread/list").await.0, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_connections_of_one_peer_are_limited() {
    let server = plan(Puppet::new(|input| talk(input, 1)))
        .set(|settings| settings.limits.peer.connections = Some(4))
        .on_memory()
        .await;
    let request = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n\r\n", server.address());
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(server.raw(&request).await);
    }
    wait_until("the fifth is closed", async || {
        let response = server.exchange(request.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")).await;
        response.is_empty()
    })
    .await;
    drop(held);
    wait_until("there is room again", async || {
        let response = server.exchange(request.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")).await;
        raw_status(&response) == 200
    })
    .await;
}

/// A full gateway still answers probes, and only those.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_probes_have_seats_of_their_own() {
    let server = plan(Puppet::new(|input| talk(input, 1)))
        .set(|settings| settings.limits.connections = 3)
        .on_memory()
        .await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut stream =
            server.raw(format!("GET /agents HTTP/1.1\r\nhost: {}\r\n\r\n", server.address())).await;
        let mut head = [0; 12];
        tokio::io::AsyncReadExt::read_exact(&mut stream, &mut head).await.expect("a head");
        held.push(stream);
    }
    for _ in 0..5 {
        let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", server.address());
        assert_eq!(raw_status(&server.exchange(ask("/livez")).await), 200);
        assert_eq!(raw_status(&server.exchange(ask("/readyz")).await), 200);
        assert_eq!(raw_status(&server.exchange(ask("/agents")).await), 503);
    }
}

/// More clients that connect and send nothing than there are connections, and reserved ones: probes get in at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_silent_connections_do_not_take_the_seats_of_probes() {
    let server = plan(Puppet::new(|input| talk(input, 1)))
        .set(|settings| {
            settings.limits.connections = 3;
            // Silent connections are not closed before the end of the test.
            settings.limits.request_timeout = std::time::Duration::from_secs(3600);
        })
        .on_memory()
        .await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(server.raw(String::new()).await);
    }
    let half = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n", server.address());
    for _ in 0..20 {
        silent.push(server.raw(half.clone()).await);
    }
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", server.address());
    let probes = async {
        for _ in 0..3 {
            assert_eq!(raw_status(&server.exchange(ask("/livez")).await), 200);
            assert_eq!(raw_status(&server.exchange(ask("/readyz")).await), 200);
        }
    };
    with_timeout("probes", probes).await;
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_and_metrics_move_to_the_admin_listener() {
    let store = Backend::memory().await.store;
    let settings = Settings::default().admin_listen(Some("127.0.0.1:0".parse().expect("an address")));
    let gateway = agentwire_gateway::Gateway::builder(store, settings)
        .agent("demo", agentwire_gateway::AgentConfig::new(agentwire_gateway::agent::Demo::default()))
        .build();
    let listen = async || tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let (public, admin) = (listen().await, listen().await);
    let base =
        |listener: &tokio::net::TcpListener| format!("http://{}", listener.local_addr().expect("bound"));
    let (public_base, admin_base) = (base(&public), base(&admin));
    tokio::spawn(serve_with_admin(gateway, public, Some(admin), std::future::pending()));
    let client = agentwire_client::transport::builder().no_proxy().build().expect("a client");
    let status = async |base: &str, path: &str| {
        client.get(format!("{base}{path}")).send().await.expect("a response").status().as_u16()
    };
    for path in ["/livez", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!((status(&admin_base, path).await, status(&public_base, path).await), (200, 404), "{path}");
    }
    assert_eq!((status(&admin_base, "/agents").await, status(&public_base, "/agents").await), (404, 200));
    assert_eq!(status(&admin_base, "/thread/list").await, 404);
}

/// Failed authentications have a bucket of their own per peer, and nobody with a credential is refused by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_failed_authentications_are_limited() {
    let server = plan(Arc::new(agentwire_gateway::agent::Demo::without_pauses()))
        .set(|settings| {
            settings.auth.mode = AuthMode::Required;
            settings.limits.peer.failures = PeerLimits::default().failures;
        })
        .on_memory()
        .await;
    let mut statuses = Vec::new();
    for _ in 0..40 {
        let request = server.ask(Method::GET, "/thread/list").header("authorization", "Bearer no");
        statuses.push(answer(request).await.0.as_u16());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 30, "{statuses:?}");
    assert_eq!(statuses.last(), Some(&429));
    assert_eq!(server.json("/livez").await, (reqwest::StatusCode::OK, json!("ok\n")));
}
