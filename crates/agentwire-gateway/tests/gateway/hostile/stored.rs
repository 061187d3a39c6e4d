//! P6: what a user can store, in a thread and in all, and races for the last place.

use agentwire_core::event::{Body, Event};
use agentwire_gateway::{codes, settings::*};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::*;

fn users(settings: &mut Settings) {
    settings.identity = Identity::default()
        .user(IdentityField::header("x-user", None))
        .tenant(IdentityField::header("x-tenant", Some("acme")));
}

fn run(server: &Server, user: &str, thread: &str, run: &str, text: &str) -> RequestBuilder {
    server.post("/", &Server::input(thread, run, text)).header("x-user", user)
}

/// Status and code of a run request; the code of a run that was refused or failed in its stream.
async fn started(request: RequestBuilder) -> (u16, String) {
    let response = with_timeout("a response", request.send()).await.expect("a response");
    let status = response.status().as_u16();
    let text = with_timeout("the end", response.text()).await.expect("a body");
    let code = text.split(r#""code":""#).nth(1).and_then(|rest| rest.split('"').next());
    (status, code.unwrap_or_default().to_owned())
}

/// The response to a run request. A store without a free connection refuses with 503; the request is then sent again, as a
/// client would.
async fn opened(request: RequestBuilder) -> Stream {
    for _ in 0..30 {
        let stream = Stream::of(request.try_clone().expect("a body in memory")).await;
        if stream.status() != 503 {
            return stream;
        }
    }
    panic!("the store had no free connection for a long time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_threads_of_a_user_have_a_quota() {
    for backend in Backend::each().await {
        let server = plan(Puppet::eager(|input| talk(input, 1)))
            .set(users)
            .set(|settings| {
                settings.limits.user.threads = Some(2);
                settings.limits.tenant.threads = Some(3);
            })
            .on(&backend.store)
            .await;
        for thread in ["t1", "t2"] {
            assert_eq!(started(run(&server, "ada", thread, thread, "x")).await, (200, String::new()));
        }
        let refused = run(&server, "ada", "t3", "r3", "x");
        let (status, body) = answer(refused).await;
        assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (429, Some(codes::QUOTA_EXCEEDED)));
        assert!(body["error"]["message"].as_str().expect("text").contains("`threads`"), "{body}");
        assert_eq!(started(run(&server, "ada", "t1", "again", "x")).await.0, 200, "a thread that exists");
        assert_eq!(started(run(&server, "bob", "t1", "b1", "x")).await.0, 200, "another user");
        assert_eq!(started(run(&server, "eve", "t1", "e1", "x")).await.0, 429, "the tenant has three");
        let elsewhere = run(&server, "eve", "t1", "e1", "x").header("x-tenant", "other");
        assert_eq!(started(elsewhere).await.0, 200);
        let deleted = server.ask(Method::DELETE, "/thread/t1").header("x-user", "ada");
        assert_eq!(answer(deleted).await.0, 200);
        assert_eq!(started(run(&server, "ada", "t3", "r3", "x")).await.0, 200, "there is room again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_storage_of_a_user_has_a_quota() {
    for backend in Backend::each().await {
        let server = plan(Puppet::eager(|input| talk(input, 1)))
            .set(users)
            .set(|settings| settings.limits.user.storage = Some(100_000))
            .on(&backend.store)
            .await;
        let long = "x".repeat(60_000);
        let mut statuses = Vec::new();
        for number in 0..6 {
            let id = format!("r{number}");
            statuses.push(started(run(&server, "ada", &id, &id, &long)).await);
        }
        assert_eq!(statuses[0].0, 200);
        assert_eq!(statuses[5], (429, codes::QUOTA_EXCEEDED.to_owned()), "{statuses:?}");
        let (_, body) = answer(run(&server, "ada", "r0", "more", "x")).await;
        assert!(body["error"]["message"].as_str().expect("text").contains("`storage`"), "{body}");
        assert_eq!(started(run(&server, "bob", "r0", "r0", &long)).await.0, 200, "another user");
        for number in 0..6 {
            let path = format!("/thread/r{number}");
            answer(server.ask(Method::DELETE, &path).header("x-user", "ada")).await;
        }
        assert_eq!(started(run(&server, "ada", "new", "new", "x")).await.0, 200, "there is room again");
    }
}

/// Of any number of starts at once, as many get through as there are places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_starts_at_once_do_not_exceed_a_quota() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 1));
        let server = plan(puppet.clone())
            .set(users)
            .set(|settings| settings.limits.user.runs = Some(2))
            .on(&backend.store)
            .await;
        let ids: Vec<_> = (0..8).map(|number| format!("r{number}")).collect();
        let streams = ids.iter().map(|id| Stream::of(run(&server, "ada", id, id, "x")));
        let streams = futures_util::future::join_all(streams).await;
        let accepted = streams.iter().filter(|stream| stream.status() == 200).count();
        assert_eq!(accepted, 2, "{:?}", streams.iter().map(Stream::status).collect::<Vec<_>>());
        puppet.allow(1000);
        drop(streams);

        let server = plan(Puppet::eager(|input| talk(input, 1)))
            .set(users)
            .set(|settings| settings.limits.user.threads = Some(3))
            .on(&backend.store)
            .await;
        let starts = ids.iter().map(|id| started(run(&server, "bob", id, id, "x")));
        let statuses = futures_util::future::join_all(starts).await;
        let accepted = statuses.iter().filter(|(status, _)| *status == 200).count();
        assert_eq!(accepted, 3, "{statuses:?}");
        assert!(statuses.iter().all(|(status, _)| [200, 429].contains(status)), "{statuses:?}");
    }
}

/// The same at two gateways on one store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_starts_at_two_gateways_do_not_exceed_a_quota() {
    starts_at_two_gateways(Backend::sqlite().await).await;
}

/// Live runs, threads and bytes are counted in the store.
pub(crate) async fn starts_at_two_gateways(backend: Backend) {
    let other = backend.reopened().await;
    let ids: Vec<_> = (0..12).map(|number| format!("r{number}")).collect();
    let both = async |user: PartyLimits, tenant: PartyLimits, puppet: std::sync::Arc<Puppet>| {
        let gateway = || {
            let (user, tenant) = (user.clone(), tenant.clone());
            plan(puppet.clone()).set(users).set(move |settings| {
                settings.limits.user = user;
                settings.limits.tenant = tenant;
            })
        };
        [gateway().on(&backend.store).await, gateway().on(&other).await]
    };
    let none = PartyLimits::of_user();
    let with = |change: fn(&mut PartyLimits)| {
        let mut limits = PartyLimits::of_user();
        change(&mut limits);
        limits
    };
    // Live runs, of a user and of a tenant with several.
    for (user, tenant, name) in [
        (with(|it| it.runs = Some(3)), none.clone(), "ada"),
        (none.clone(), with(|it| it.runs = Some(6)), "bob"),
    ] {
        let puppet = Puppet::new(|input| talk(input, 1));
        let servers = both(user, tenant, puppet.clone()).await;
        let starts = ids.iter().enumerate().map(|(number, id)| {
            let id = format!("{name}-{id}");
            opened(run(&servers[number % 2], name, &id, &id, "x"))
        });
        let mut streams = futures_util::future::join_all(starts).await;
        let statuses: Vec<_> = streams.iter().map(Stream::status).collect();
        let accepted = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(accepted, if name == "ada" { 3 } else { 6 }, "{name}: {statuses:?}");
        assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
        puppet.allow(1000);
        for stream in streams.iter_mut().filter(|stream| stream.status() == 200) {
            stream.rest().await;
        }
        // Ended runs give their places back, at either gateway.
        for (server, id) in servers.iter().zip(["again-0", "again-1"]) {
            let id = format!("{name}-{id}");
            assert_eq!(started(run(server, name, &id, &id, "x")).await, (200, String::new()));
        }
    }
    let servers =
        both(with(|it| it.threads = Some(5)), none.clone(), Puppet::eager(|input| talk(input, 1))).await;
    let starts = ids.iter().enumerate().map(|(at, id)| opened(run(&servers[at % 2], "cyd", id, id, "x")));
    let streams = futures_util::future::join_all(starts).await;
    let statuses: Vec<_> = streams.iter().map(Stream::status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 5, "{statuses:?}");
    // Inputs of 30 kB: three fit into 100 kB, however many come at once; their runs say nothing meanwhile.
    let puppet = Puppet::new(|input| talk(input, 1));
    let servers = both(with(|it| it.storage = Some(100_000)), none, puppet.clone()).await;
    let long = "x".repeat(30_000);
    let starts = ids.iter().enumerate().map(|(at, id)| opened(run(&servers[at % 2], "dan", id, id, &long)));
    let streams = futures_util::future::join_all(starts).await;
    let used = backend.store.usage(&"acme".into(), Some(&"dan".into())).await.expect("the usage");
    let statuses: Vec<_> = streams.iter().map(Stream::status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 3, "{statuses:?} {used:?}");
    assert!(used.bytes <= 100_000, "{used:?}");
    puppet.allow(1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_a_state_has_a_ceiling() {
    let large = json!({"a": "x".repeat(20_000)});
    let of_agent = large.clone();
    let agent = Puppet::eager(move |input| match input.run.as_str() {
        "agent" => vec![Event::new(Body::StateSnapshot { snapshot: of_agent.clone().into() })],
        "patch" => {
            let patch = json!([{"op": "add", "path": "/a", "value": "x".repeat(20_000)}]).to_string();
            let patch = agentwire_core::format::ag_ui::patch_from_json(&patch).expect("a patch");
            vec![Event::new(Body::StateDelta { patch })]
        }
        _ => talk(input, 1),
    });
    let server = plan(agent).set(|settings| settings.limits.thread_state = 10_000).on_memory().await;
    let mut body = Server::input("t", "r1", "x");
    body["state"] = large.clone();
    let (status, code) = started(server.post("/", &body)).await;
    assert_eq!((status, code.as_str()), (413, codes::THREAD_TOO_LARGE));
    server.run_to_end("t", "r2", "x").await;
    let patch = json!([{"op": "add", "path": "/a", "value": large["a"]}]);
    let (status, body) = answer(server.ask(Method::PATCH, "/state/t").json(&patch)).await;
    assert_eq!((status.as_u16(), body["error"]["code"].as_str()), (413, Some(codes::THREAD_TOO_LARGE)));
    for id in ["agent", "patch"] {
        let frames = server.run_to_end("t", id, "x").await;
        let last = frames.last().expect("an end").json();
        assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!(codes::THREAD_TOO_LARGE)));
    }
    let (_, state) = server.json("/state_snapshot/t").await;
    assert!(state.to_string().len() < 10_000);
    let fits = json!([{"op": "add", "path": "/b", "value": 1}]);
    assert_eq!(answer(server.ask(Method::PATCH, "/state/t").json(&fits)).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_a_conversation_has_a_ceiling() {
    let agent = Puppet::eager(|input| match input.run.as_str() {
        "agent" => vec![start("m"), delta("m", &"x".repeat(120_000)), end("m"), finished(input)],
        _ => talk(input, 1),
    });
    let server = plan(agent).set(|settings| settings.limits.thread_messages = 100_000).on_memory().await;
    let (status, code) = started(server.post("/", &Server::input("t", "r1", &"x".repeat(120_000)))).await;
    assert_eq!((status, code.as_str()), (413, codes::THREAD_TOO_LARGE));
    // Piece by piece.
    let mut refused = None;
    for number in 0..6 {
        let body = Server::input("t", &format!("p{number}"), &"x".repeat(30_000));
        let (_, code) = started(server.post("/", &body)).await;
        if !code.is_empty() {
            refused = Some((number, code));
            break;
        }
    }
    assert_eq!(refused, Some((3, codes::THREAD_TOO_LARGE.to_owned())));
    let frames = server.run_to_end("other", "agent", "x").await;
    let last = frames.last().expect("an end").json();
    assert_eq!((&last["type"], &last["code"]), (&json!("RUN_ERROR"), &json!(codes::THREAD_TOO_LARGE)));
    let (_, snapshot): (_, Value) = server.json("/message_snapshot/other").await;
    assert!(snapshot.to_string().len() < 100_000);
}
