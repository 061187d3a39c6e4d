//! Threads and bodies that take long to read: the work is done off the workers, with the same results.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use agentwire_core::event::{Body, Event};
use agentwire_gateway::{
    UpstreamError,
    agent::{Agent, BoxFuture, EventSink, Request},
    codes,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::*;

/// A thread with a long conversation and a large state, while its run goes on and after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_threads_are_shown_like_small_ones() {
    let state = json!({"list": (0..30_000).collect::<Vec<_>>()});
    let sent = state.clone();
    let puppet = Puppet::new(move |input| {
        let mut events = talk(input, 3);
        events.insert(0, Event::new(Body::StateSnapshot { snapshot: sent.clone().into() }));
        events.insert(1, Event::new(Body::StepStarted { name: "search".into() }));
        events
    });
    let server = plan(puppet.clone()).on_memory().await;
    let long = "long words ".repeat(20_000);
    let mut stream = server.run("t", "r", &long).await;
    puppet.allow(3);
    stream.take(4).await;
    let check = async |is_live: bool| {
        for format in ["", "?format=ag-ui", "?format=hai", "?format=ai-sdk@6"] {
            let (status, shown) = server.json(&format!("/message_snapshot/t{format}")).await;
            assert_eq!(status, 200, "{format}: {shown}");
            let is_shown = shown.to_string().contains(&long) || (is_live && format.contains("ai-sdk"));
            assert!(is_shown, "{format}");
        }
        assert_eq!(server.json("/state_snapshot/t").await.1["snapshot"], state);
        assert_eq!(server.json("/copilotkit/threads/t/state").await.1["state"], state);
        let (status, run) = server.json("/runs/r").await;
        assert_eq!((status.as_u16(), run["step"].as_str()), (200, is_live.then_some("search")), "{run}");
        let like = json!({"threadId": "t", "messageId": "r-user", "rating": "up"});
        assert_eq!(answer(server.post("/feedback", &like)).await.0, 200);
        let unlike = json!({"threadId": "t", "messageId": "nothing", "rating": "up"});
        assert_eq!(answer(server.post("/feedback", &unlike)).await.0, 404);
    };
    check(true).await;
    let patch = json!([{"op": "test", "path": "/list/0", "value": 0}]);
    let (patched, livez) = tokio::join!(
        answer(server.ask(Method::PATCH, "/state/t").json(&patch)),
        server.ask(Method::GET, "/livez").send()
    );
    assert_eq!((patched.0.as_u16(), livez.expect("a response").status().as_u16()), (200, 200));
    puppet.allow(100);
    stream.rest().await;
    check(false).await;
    // A request without messages: the conversation as events.
    let sync = json!({"threadId": "t", "runId": "s", "messages": [], "tools": [], "context": [], "state": {}, "forwardedProps": {}});
    for (path, is_hai) in [("/", false), ("/awp", true)] {
        let frames = Stream::of(server.post(path, &sync)).await.rest().await;
        let text: String = frames.iter().map(|frame| frame.data.as_str()).collect();
        assert!(text.contains(&long) && (is_hai || text.contains("29998,29999")), "{path}");
    }
    let whole = server.follow("/threads/t/stream").await.rest().await;
    assert!(whole.iter().any(|frame| frame.data.contains(&long)), "the stream of the thread");
}

/// Bodies that are short on the wire, or small in bytes and large in parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_bodies_are_refused_or_read() {
    let server = plan(Puppet::eager(|input| talk(input, 1))).on_memory().await;
    let post = |body: Vec<u8>, encoding: Option<&str>| {
        let request = server.ask(Method::POST, "/").header("content-type", "application/json");
        let request = match encoding {
            Some(encoding) => request.header("content-encoding", encoding),
            None => request,
        };
        answer(request.body(body))
    };
    // A megabyte of packed zeros would be a gigabyte.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut packed, &vec![b' '; 8 << 20]).expect("in memory");
    let packed = packed.finish().expect("in memory");
    for encoding in ["gzip", "x-gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let (status, body) = post(packed.clone(), Some(encoding)).await;
        assert!(matches!(status.as_u16(), 400 | 415), "{encoding}: {status} {body}");
    }
    let nested = |open: &str, close: &str, depth: usize| {
        let value = format!("{}1{}", open.repeat(depth), close.repeat(depth));
        let mut body = Server::input("t", "r", "x").to_string();
        body.insert_str(1, &format!("\"extra\":{value},"));
        body.into_bytes()
    };
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [200, 100_000] {
            let (status, body) = post(nested(open, close, depth), None).await;
            assert_eq!(
                (status.as_u16(), &body["error"]["code"]),
                (400, &json!(codes::BAD_REQUEST)),
                "{depth}"
            );
        }
    }
    let keys: serde_json::Map<_, _> = (0..200_000).map(|key| (format!("k{key}"), Value::Null)).collect();
    let mut body = Server::input("keys", "keys", "x");
    body["forwardedProps"] = Value::Object(keys);
    let (many, livez) =
        tokio::join!(Stream::of(server.post("/", &body)), server.ask(Method::GET, "/livez").send());
    assert_eq!((many.status(), livez.expect("a response").status().as_u16()), (200, 200));
}

/// An agent whose first poll lasts until another task of the same worker has run.
struct LongFirstPoll;

impl Agent for LongFirstPoll {
    fn run(&self, request: Request, sink: EventSink) -> BoxFuture<'static, Result<(), UpstreamError>> {
        Box::pin(async move {
            if request.input.run == "r2".into() {
                let (sender, receiver) = mpsc::channel();
                tokio::spawn(async move { sender.send(()) });
                assert!(receiver.recv_timeout(Duration::from_secs(120)).is_ok(), "no other task could run");
            }
            for event in talk(&request.input, 1) {
                sink.send(event).await?;
            }
            Ok(())
        })
    }
}

/// The request to the agent has the whole thread in it, however short the client's is.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn requests_to_agents_of_large_threads_are_written_off_the_workers() {
    let server = plan(Arc::new(LongFirstPoll)).on_memory().await;
    server.run("t", "r1", &"long words ".repeat(20_000)).await.rest().await;
    let last = server.run("t", "r2", "short").await.rest().await.pop().expect("an event");
    assert_eq!(last.kind(), "RUN_FINISHED", "{}", last.data);
}

/// A page of threads is written as it is found, and has an end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_a_search_does_not_show_more_than_fits() {
    let server = plan(Puppet::eager(|input| talk(input, 1))).on_memory().await;
    let text = "x".repeat(7_500_000);
    for number in 0..9 {
        let thread = format!("t{number}");
        server.run(&thread, &format!("r{number}"), "x").await.rest().await;
        let patch = json!([{"op": "add", "path": "/text", "value": text}]);
        let request = server.ask(Method::PATCH, &format!("/state/{thread}")).json(&patch);
        assert_eq!(answer(request).await.0, 200);
    }
    let search = |body: Value| answer(server.post("/langgraph/threads/search", &body));
    let (status, refused) = search(json!({})).await;
    assert_eq!(status, 413, "{refused}");
    let (status, few) = search(json!({"limit": 2})).await;
    assert_eq!((status.as_u16(), few.as_array().map(Vec::len)), (200, Some(2)));
    let (status, ids) = search(json!({"select": ["thread_id"]})).await;
    assert_eq!((status.as_u16(), ids.as_array().map(Vec::len)), (200, Some(9)));
}
