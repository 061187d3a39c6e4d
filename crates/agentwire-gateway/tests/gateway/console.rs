//! The console and the routes that it needs: the page, the list of threads, rename, runs, export, decisions, health.

use std::sync::Arc;

use agentwire_gateway::{agent::Demo, codes};
use reqwest::{Method, header};
use serde_json::{Value, json};

use crate::support::*;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";

/// A client that does not follow redirects.
fn plain() -> reqwest::Client {
    let builder =
        agentwire_client::transport::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    builder.build().expect("a client")
}

async fn get(server: &Server, path: &str, accept: &str) -> reqwest::Response {
    let request = plain().get(format!("{}{path}", server.base)).header(header::ACCEPT, accept);
    request.send().await.expect("a response")
}

#[tokio::test]
async fn a_browser_is_led_to_the_page_and_a_program_is_not() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let response = get(&server, "/", BROWSER).await;
    assert_eq!(response.status(), 303);
    assert_eq!(response.headers()[header::LOCATION], "/console");
    assert_eq!(response.headers()[header::VARY], "Accept");
    for program in ["*/*", "application/json", "text/event-stream", "application/json, text/html;q=0.5"] {
        let response = get(&server, "/", program).await;
        assert_eq!(response.status(), 405, "{program}");
        assert_eq!(response.headers()[header::VARY], "Accept");
        let body: Value = serde_json::from_str(&response.text().await.expect("text")).expect("JSON");
        assert_eq!(body["error"]["code"], codes::METHOD_NOT_ALLOWED);
        assert!(body["error"]["hint"].as_str().is_some_and(|hint| hint.contains("/console")), "{body}");
    }
}

#[tokio::test]
async fn the_page_has_strict_headers_and_is_compressed() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
        media-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
        frame-ancestors 'none'";
    for path in
        ["/console", "/console/console.js", "/console/console.css", "/console/charts.js", "/console/icon.svg"]
    {
        let url = format!("{}{path}", server.base);
        let whole = plain().get(&url).send().await.expect("a response");
        assert_eq!(whole.status(), 200, "{path}");
        let headers = whole.headers().clone();
        assert_eq!(headers["content-security-policy"], policy, "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert!(!headers.contains_key("content-encoding"));
        let whole = whole.bytes().await.expect("a body");
        assert!(!whole.is_empty(), "{path}");
        let packed = plain().get(&url).header(header::ACCEPT_ENCODING, "br, gzip").send().await;
        let packed = packed.expect("a response");
        assert_eq!(packed.headers()["content-encoding"], "gzip");
        let packed = packed.bytes().await.expect("a body");
        let mut unpacked = Vec::new();
        std::io::copy(&mut flate2::read::GzDecoder::new(&packed[..]), &mut unpacked).expect("valid gzip");
        assert_eq!(unpacked, whole);
        let again = plain().get(&url).header(header::IF_NONE_MATCH, headers["etag"].clone()).send().await;
        assert_eq!(again.expect("a response").status(), 304);
    }
    let slash = get(&server, "/console/", BROWSER).await;
    assert_eq!(
        (slash.status().as_u16(), &slash.headers()[header::LOCATION]),
        (303, &"/console".parse().expect("ASCII"))
    );
    for path in ["/console/other.js", "/console/..%2fCargo.toml", "/ui"] {
        assert_eq!(get(&server, path, BROWSER).await.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn the_page_can_be_off() {
    let beyond = "0.0.0.0:0".parse().expect("an address");
    for (listen, console, is_on) in
        [(None, Some(false), false), (Some(beyond), None, false), (Some(beyond), Some(true), true)]
    {
        let server = plan(Arc::new(Demo::without_pauses())).set(|settings| {
            settings.console = console;
            settings.listen = listen.unwrap_or(settings.listen);
        });
        let server = server.on_memory().await;
        let (page, root) = if is_on { (200, 303) } else { (404, 405) };
        assert_eq!(get(&server, "/console", BROWSER).await.status(), page, "{listen:?} {console:?}");
        assert_eq!(get(&server, "/console/console.js", BROWSER).await.status(), page);
        assert_eq!(get(&server, "/", BROWSER).await.status(), root);
    }
}

#[tokio::test]
async fn threads_are_searched_renamed_and_paged() {
    for backend in Backend::each().await {
        let server = plan(Arc::new(Demo::without_pauses())).on(&backend.store).await;
        for (thread, text) in [("a", "Où est la GARE?"), ("b", "two\n  lines"), ("c", "fail")] {
            server.run_to_end(thread, &format!("run-{thread}"), text).await;
        }
        let ids = |body: &Value| -> Vec<String> {
            let list = body["threads"].as_array().expect("a list");
            list.iter().map(|thread| thread["threadId"].as_str().expect("an id").to_owned()).collect()
        };
        let (status, all) = server.json("/threads").await;
        assert_eq!((status.as_u16(), ids(&all)), (200, vec!["c".into(), "b".into(), "a".into()]));
        let first = &all["threads"][1];
        assert_eq!((&first["title"], &first["status"]), (&json!("two lines"), &json!("finished")));
        assert_eq!(
            (&first["agent"], &first["runId"], &first["named"]),
            (&json!("demo"), &json!("run-b"), &json!(false))
        );
        assert!(first["createdAt"].is_string() && first["updatedAt"].is_string());
        for (query, found) in [
            ("query=gare", vec!["a"]),
            ("query=o%C3%B9", vec!["a"]),
            ("query=run-b", vec!["b"]),
            ("query=b", vec!["b", "a"]),
            ("query=demo%20agent", vec![]),
            ("status=failed", vec!["c"]),
            ("query=nothing", vec![]),
        ] {
            let (_, body) = server.json(&format!("/threads?{query}")).await;
            if query != "query=demo%20agent" && query != "query=b" {
                assert_eq!(ids(&body), found, "{query}");
            } else {
                assert!(found.iter().all(|id| ids(&body).contains(&(*id).to_owned())), "{query}: {body}");
            }
        }
        let (status, renamed) =
            answer(server.ask(Method::PATCH, "/threads/a").json(&json!({"title": " The  station "}))).await;
        assert_eq!((status.as_u16(), &renamed["title"]), (200, &json!("The station")));
        assert_eq!(ids(&server.json("/threads?query=station").await.1), ["a"]);
        // A page of the AI SDK stores its profile in the same place.
        let back = answer(server.ask(Method::PATCH, "/threads/a").json(&json!({"title": null}))).await.1;
        assert_eq!(back["title"], "Où est la GARE?");
        for (path, body, code) in [
            ("/threads/a", json!({"title": 1}), codes::BAD_REQUEST),
            ("/threads/none", json!({"title": "x"}), codes::UNKNOWN_THREAD),
        ] {
            assert_eq!(answer(server.ask(Method::PATCH, path).json(&body)).await.1["error"]["code"], code);
        }
        assert_eq!(server.json("/threads?limit=x").await.0, 400);
        let (mut seen, mut path) = (Vec::new(), "/threads?limit=2".to_owned());
        loop {
            let (_, page) = server.json(&path).await;
            seen.extend(ids(&page));
            match page["next"].as_str() {
                Some(next) => path = format!("/threads?limit=2&before={next}"),
                None => break,
            }
        }
        assert_eq!(seen, ["c", "b", "a"]);
    }
}

#[tokio::test]
async fn runs_are_listed_and_a_thread_is_exported() {
    for backend in Backend::each().await {
        let server = plan(Arc::new(Demo::without_pauses())).on(&backend.store).await;
        server.run_to_end("t", "r1", "tools").await;
        server.run_to_end("t", "r2", "long 3000").await;
        let (_, body) = server.json("/threads/t/runs").await;
        let runs: Vec<_> = body["runs"].as_array().expect("a list").iter().map(|run| &run["runId"]).collect();
        assert_eq!(runs, ["r2", "r1"]);
        assert_eq!(server.json("/threads/t/runs?limit=1").await.1["runs"].as_array().map(Vec::len), Some(1));
        let response = server.ask(Method::GET, "/threads/t/export").send().await.expect("a response");
        assert_eq!(response.headers()["agentwire-recovery"], "whole");
        assert_eq!(response.headers()["content-disposition"], "attachment; filename=\"t.jsonl\"");
        let text = response.text().await.expect("text");
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
        let count = |run: &str| {
            body["runs"].as_array().expect("a list").iter().find(|it| it["runId"] == *run).expect("it")["events"].as_u64()
        };
        assert_eq!(Some(lines.len() as u64), count("r1").zip(count("r2")).map(|(one, two)| one + two));
        assert_eq!((&lines[0]["type"], &lines[0]["runId"]), (&json!("RUN_STARTED"), &json!("r1")));
        for path in ["/threads/none/export", "/threads/none/runs"] {
            assert_eq!(server.json(path).await.0, 404, "{path}");
        }
    }
}

#[tokio::test]
async fn a_decision_names_who_made_it_and_when() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    server.run_to_end("t", "r1", "approve").await;
    let (_, open) = server.json("/threads/t/pending").await;
    assert_eq!(open[0]["arguments"], json!({"amount": 40, "currency": "EUR"}));
    let hash = open[0]["argumentsHash"].as_str().expect("a hash").to_owned();
    assert_eq!(hash.len(), 64);
    assert!(open[0].get("answer").is_none());
    let mut input = Server::input("t", "r2", "");
    input["messages"] = json!([]);
    input["resume"] =
        json!([{"interruptId": open[0]["id"], "status": "resolved", "payload": {"approved": true}}]);
    Stream::of(server.post("/", &input)).await.rest().await;
    assert_eq!(server.json("/threads/t/pending").await.1, json!([]));
    let (_, all) = server.json("/threads/t/pending?all=true").await;
    let answer = &all[0]["answer"];
    assert_eq!((&answer["by"], &answer["runId"]), (&json!("default-user"), &json!("r2")));
    assert!(answer["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{all}");
    assert_eq!((&all[0]["awaitingResult"], &all[0]["argumentsHash"]), (&json!(false), &json!(hash)));
}

#[tokio::test]
async fn agents_are_listed_with_their_health() {
    let server = plan(Arc::new(Demo::without_pauses())).on_memory().await;
    let health = async || server.json("/agents").await.1["agents"][0]["health"].clone();
    let idle = health().await;
    assert_eq!(
        idle,
        json!({"runs": {"live": 0, "started": 0, "failed": 0}, "readers": 0, "breaker": "closed", "firstEventMs": null, "lastError": null})
    );
    server.run_to_end("t", "r1", "fail").await;
    let failed = health().await;
    assert_eq!((&failed["runs"]["started"], &failed["runs"]["failed"]), (&json!(1), &json!(1)));
    assert!(failed["firstEventMs"].is_u64(), "{failed}");
    assert!(
        failed["lastError"]["code"].is_string() && failed["lastError"]["message"].is_string(),
        "{failed}"
    );
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone()).on_memory().await;
    let mut stream = server.run("t", "r", "hello").await;
    puppet.allow(1);
    stream.take(1).await;
    let live = server.json("/agents").await.1["agents"][0]["health"].clone();
    assert_eq!((&live["runs"]["live"], &live["readers"]), (&json!(1), &json!(1)));
    puppet.allow(100);
    stream.rest().await;
}
