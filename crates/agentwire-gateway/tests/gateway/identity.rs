//! Owners: where requests name them, and isolation between users.

use std::sync::Arc;

use agentwire_gateway::{
    agent::Demo,
    codes, routes_without_identity,
    settings::{AgentSettings, Identity, IdentityField, IdentitySource, RouteIdentities, Settings},
};
use reqwest::Method;
use serde_json::json;

use crate::support::*;

/// On every route with an id, another user gets byte for byte the response of an unknown id.
#[tokio::test]
async fn p7_other_users_get_the_response_of_an_unknown_id_on_every_route() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 3));
        let server = plan(puppet.clone())
            .set(|settings| settings.identity.user = IdentityField::header("x-user-id", None))
            .on(&backend.store)
            .await;
        let run = |user: &'static str, thread: &str, run: &str| {
            server.post("/", &Server::input(thread, run, "hello")).header("x-user-id", user)
        };
        let (mut live, mut done) = (
            Stream::of(run("ada", "live", "live-run")).await,
            Stream::of(run("ada", "done", "done-run")).await,
        );
        live.take(1).await;
        puppet.allow(5);
        let _ = tokio::join!(live.take(1), done.take(1));
        let (_, document) = answer(server.ask(Method::GET, "/openapi.json")).await;
        let mut tried = 0;
        for (path, methods) in document["paths"].as_object().expect("paths") {
            if !path.contains("{id}") && !path.contains("{run}") {
                continue;
            }
            for method in methods.as_object().expect("methods").keys() {
                let method: Method = method.to_uppercase().parse().expect("a method");
                for kind in ["live", "done"] {
                    let fetch = async |id: &str, run: &str| {
                        let path = path.replace("{id}", id).replace("{run}", run);
                        let body = if method == Method::PATCH { "[]" } else { "{}" };
                        let request = server
                            .ask(method.clone(), &path)
                            .header("x-user-id", "eve")
                            .header("content-type", "application/json")
                            .body(body);
                        let response = with_timeout(&path, request.send()).await.expect("a response");
                        let status = response.status();
                        (status, with_timeout(&path, response.text()).await.expect("a body"))
                    };
                    let foreign = fetch(kind, &format!("{kind}-run")).await;
                    let unknown = fetch("nothing", "no-run").await;
                    assert_eq!(foreign, unknown, "{method} {path} of a {kind} thread");
                    tried += 1;
                }
            }
        }
        assert!(tried >= 40, "{tried}");
        let list = answer(server.ask(Method::GET, "/thread/list").header("x-user-id", "eve")).await;
        assert_eq!(list.1, json!([]));
        // The same ids are free for another user and name other threads.
        puppet.allow(100);
        let mut theirs = Stream::of(run("eve", "done", "done-run")).await;
        assert_valid(&theirs.rest().await);
        assert_eq!(puppet.last_request().input.messages.len(), 1, "no message of the other user's thread");
        assert_eq!(puppet.last_request().owner.user.as_str(), "eve");
    }
}

#[tokio::test]
async fn users_are_read_from_header_path_or_body() {
    let user = |source: IdentitySource, default: Option<&str>| IdentityField {
        source,
        default: default.map(str::to_owned),
    };
    let list = async |server: &Server, name: &str, value: &str| {
        answer(server.ask(Method::GET, "/thread/list").header(name, value)).await.1
    };

    let by_header = plan(Arc::new(Demo::without_pauses()))
        .set(|settings| settings.identity.user = user(IdentitySource::Header("x-user-id".into()), None))
        .on_memory()
        .await;
    let (status, body) = answer(by_header.post("/", &Server::input("t", "r", "hello"))).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (401, Some(codes::NO_IDENTITY)));
    let request = by_header.post("/", &Server::input("t", "r", "hello")).header("x-user-id", "ada");
    assert_valid(&Stream::of(request).await.rest().await);
    assert_eq!(list(&by_header, "x-user-id", "ada").await, json!([{"threadId": "t"}]));
    assert_eq!(list(&by_header, "x-user-id", "bob").await, json!([]));
    assert_eq!(
        answer(by_header.ask(Method::GET, "/thread/list").header("x-user-id", "x".repeat(600))).await.0,
        400
    );

    let puppet = Puppet::eager(|input| talk(input, 1));
    let by_path = plan(puppet.clone())
        .agent(|agent| agent.path = "/users/{user}/ask".into())
        .set(|settings| settings.identity.user = user(IdentitySource::Path("user".into()), Some("nobody")))
        .on_memory()
        .await;
    assert_valid(
        &Stream::of(by_path.post("/users/ada/ask", &Server::input("t", "r", "hello"))).await.rest().await,
    );
    assert_eq!(puppet.last_request().owner.user.as_str(), "ada");
    assert_eq!(by_path.json("/thread/list").await.1, json!([]));

    let puppet = Puppet::eager(|input| talk(input, 1));
    let by_body = plan(puppet.clone())
        .set(|settings| {
            settings.identity.user =
                user(IdentitySource::Body("/forwardedProps/user".into()), Some("nobody"));
            settings.identity.tenant = user(IdentitySource::Body("/forwardedProps/app".into()), Some("app"));
            settings.identity.thread =
                Some(user(IdentitySource::Body("/forwardedProps/conversation".into()), Some("main")));
        })
        .on_memory()
        .await;
    let mut body = Server::input("ignored", "r", "hello");
    body["forwardedProps"] = json!({"user": "ada", "app": "shop", "conversation": "c1"});
    let frames = Stream::of(by_body.post("/", &body)).await.rest().await;
    assert_valid(&frames);
    assert_eq!(frames[0].json()["threadId"], "c1");
    let owner = puppet.last_request().owner;
    assert_eq!((owner.tenant.as_str(), owner.user.as_str()), ("shop", "ada"));

    let constant = plan(puppet.clone()).on_memory().await;
    constant.run_to_end("t", "r", "hello").await;
    assert_eq!(puppet.last_request().owner.user.as_str(), "default-user");
}

#[tokio::test]
async fn only_allowed_headers_reach_the_agent() {
    let puppet = Puppet::eager(|input| talk(input, 1));
    let server = plan(puppet.clone())
        .agent(|agent| agent.forward_headers = vec!["x-allowed".into()])
        .on_memory()
        .await;
    let request = server
        .post("/", &Server::input("t", "r", "hello"))
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .header("authorization", "Bearer secret")
        .header("cookie", "session=secret")
        .header("x-allowed", "yes")
        .header("x-other", "no");
    Stream::of(request).await.rest().await;
    let headers = puppet.last_request().headers;
    let names: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["traceparent", "x-allowed"]);
}

/// A malformed id must not become another user's, least of all the default one.
#[tokio::test]
async fn a_malformed_user_header_is_refused() {
    let server = plan(Arc::new(Demo::without_pauses()))
        .set(|settings| {
            settings.identity.user = IdentityField::header("x-user-id", Some("default-user"));
            settings.identity.tenant = IdentityField {
                source: IdentitySource::Body("/forwardedProps/org".into()),
                default: Some("default".into()),
            };
        })
        .on_memory()
        .await;
    let list = |users: &[&[u8]]| {
        users.iter().fold(server.ask(Method::GET, "/thread/list"), |request, user| {
            request.header("x-user-id", reqwest::header::HeaderValue::from_bytes(user).expect("a header"))
        })
    };
    let name = "日本/ü".as_bytes();
    let value = reqwest::header::HeaderValue::from_bytes(name).expect("a header");
    let request = server.post("/", &Server::input("t", "r", "hello")).header("x-user-id", value);
    assert_valid(&Stream::of(request).await.rest().await);
    let (status, body) = answer(list(&[name])).await;
    assert_eq!((status.as_u16(), body), (200, json!([{"threadId": "t"}])));
    assert_eq!(answer(list(&[])).await.1, json!([]), "the default user has no threads");
    for bad in [&[&b"\xff\xfe"[..]][..], &[b"ada", b"eve"], &[b"ada", b"ada"], &[&[b'x'; 600]]] {
        let (status, body) = answer(list(bad)).await;
        assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (400, Some(codes::BAD_ID)), "{bad:?}");
    }

    let mut input = Server::input("t", "other", "hello");
    input["forwardedProps"]["org"] = json!(42);
    let (status, body) = answer(server.post("/", &input)).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (400, Some(codes::BAD_ID)));
    // Parsed like the routes do.
    let body = r#"{"threadId":"t","runId":"lone","messages":[{"id":"u","role":"user","content":"\ud800"}],"forwardedProps":{"org":"acme"}}"#;
    let request = server.ask(Method::POST, "/").header("content-type", "application/json").body(body);
    assert_valid(&Stream::of(request).await.rest().await);
    assert_eq!(server.json("/runs/lone").await.0, 404, "the run belongs to another tenant");
}

/// A source without a default.
fn field(source: IdentitySource) -> IdentityField {
    IdentityField { source, default: None }
}

/// Every route for a run that exists, with its method.
const RUN_ROUTES: [(&str, &str); 11] = [
    ("GET", "/runs/r"),
    ("GET", "/runs/r/stream"),
    ("POST", "/runs/r/pause"),
    ("POST", "/runs/r/resume"),
    ("POST", "/runs/r/stop"),
    ("GET", "/threads/t/stream"),
    ("GET", "/threads/t/pending"),
    ("GET", "/threads/t/feedback"),
    ("GET", "/api/chat/t/stream"),
    ("GET", "/api/chat?chatId=t"),
    ("POST", "/api/chat/t/stop"),
];

#[tokio::test]
async fn a_user_named_in_the_body_can_follow_runs_by_a_header() {
    let by_body = || Identity::default().user(field(IdentitySource::Body("/forwardedProps/user".into())));
    let by_header = Identity::default().user(IdentityField::header("x-user-id", None));
    let agent = || Puppet::eager(|input| talk(input, 1));
    let mut body = Server::input("t", "r", "hello");
    body["forwardedProps"] = json!({"user": "ada"});

    let server = plan(agent()).set(|settings| settings.identity = by_body()).on_memory().await;
    assert_valid(&Stream::of(server.post("/", &body)).await.rest().await);
    for (method, path) in RUN_ROUTES {
        let method: Method = method.parse().expect("a method");
        assert_eq!(answer(server.ask(method, path)).await.0, 401, "{path}");
    }

    let server = plan(agent())
        .set(|settings| (settings.identity, settings.runs_identity) = (by_body(), Some(by_header)))
        .on_memory()
        .await;
    assert_valid(&Stream::of(server.post("/", &body)).await.rest().await);
    for (method, path) in RUN_ROUTES {
        let ask = |who: &str| {
            let method: Method = method.parse().expect("a method");
            answer(server.ask(method, path).header("x-user-id", who))
        };
        // A run that has ended cannot be paused, and has no stream for a chat.
        let known = ask("ada").await.0.as_u16();
        assert!([200, 204, 409].contains(&known), "{path}: {known}");
        if path.contains("/runs") || path.contains("/threads") {
            assert_eq!(ask("eve").await.0, 404, "{path}");
        }
        let method: Method = method.parse().expect("a method");
        assert_eq!(answer(server.ask(method, path)).await.0, 401, "{path}");
    }
    let feedback = json!({"threadId": "t", "rating": "up"});
    assert_eq!(answer(server.post("/feedback", &feedback).header("x-user-id", "ada")).await.0, 200);
}

#[tokio::test]
async fn agents_have_identities_of_their_own() {
    let public = AgentSettings::default().identity(Some(
        RouteIdentities::default().main(Identity::default().user(IdentityField::constant("all"))),
    ));
    let (one, two) = (Puppet::eager(|input| talk(input, 1)), Puppet::eager(|input| talk(input, 1)));
    let server = plan(one.clone())
        .set(|settings| settings.identity.user = IdentityField::header("x-user-id", None))
        .and("public", public, two.clone())
        .on_memory()
        .await;
    assert_eq!(answer(server.post("/", &Server::input("t", "r", "hello"))).await.0, 401);
    assert_eq!(server.json("/thread/list").await.0, 401);
    let frames =
        Stream::of(server.post("/agents/public", &Server::input("t", "r", "hello"))).await.rest().await;
    assert_valid(&frames);
    assert_eq!(two.last_request().owner.user.as_str(), "all");
    assert_eq!(server.json("/agents/public/runs/r").await.0, 200);
    assert_eq!(server.json("/agents/public/thread/list").await.1, json!([{"threadId": "t"}]));
}

#[test]
fn routes_that_can_identify_nobody_are_listed() {
    let agent = AgentSettings::default().path("/users/{user}/chat".into());
    let settings = Settings::default();
    assert_eq!(routes_without_identity(&settings, &agent), Vec::<String>::new());
    let by_path = settings.identity(Identity::default().user(field(IdentitySource::Path("user".into()))));
    let found = routes_without_identity(&by_path, &agent);
    for route in
        ["POST /awp", "POST /api/chat", "GET /thread/list", "GET /runs/{run}", "GET /threads/{id}/pending"]
    {
        assert!(found.iter().any(|found| found == route), "{route}: {found:?}");
    }
    assert!(
        !found.iter().any(|found| found == "POST /users/{user}/chat" || found == "GET /capabilities"),
        "{found:?}"
    );
    // With sources of their own.
    let by_header = || Some(Identity::default().user(IdentityField::header("x-user-id", None)));
    let whole = by_path.runs_identity(by_header()).history_identity(by_header()).state_identity(by_header());
    assert_eq!(routes_without_identity(&whole, &agent), ["POST /awp", "POST /chat", "POST /api/chat"]);
    let own = RouteIdentities::default()
        .main(Identity::default().user(field(IdentitySource::Body("/user".into()))));
    let found = routes_without_identity(&whole, &agent.identity(Some(own)));
    assert!(
        !found.iter().any(|found| found.starts_with("POST /awp") || found.starts_with("PATCH /state")),
        "{found:?}"
    );
    assert!(found.iter().any(|found| found == "POST /runs/{run}/stop"), "{found:?}");
}
