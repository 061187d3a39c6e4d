//! Clients that do not read their responses.

use std::time::Duration;

use agentwire_gateway::agent::EventSink;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::Method;
use tokio::io::AsyncReadExt;

use crate::support::*;

/// More than the system buffers for a connection.
const EVENTS: usize = 200;
const EVENT: usize = 60 << 10;

/// A gateway with little patience, and one with much on the same store: only the first cuts clients that a busy machine
/// delays.
struct Servers {
    hasty: Server,
    patient: Server,
    _backend: Backend,
}

async fn servers_with_long_run() -> Servers {
    let agent = play(|request, sink: EventSink| async move {
        sink.send(start("m")).await?;
        for _ in 0..EVENTS {
            sink.send(delta("m", &"x".repeat(EVENT))).await?;
        }
        sink.send(end("m")).await?;
        sink.send(finished(&request.input)).await?;
        Ok(())
    });
    let backend = Backend::sqlite().await;
    let patient = plan(agent.clone()).on(&backend.store).await;
    patient.run_to_end("t", "r", "hello").await;
    let hasty = plan(agent)
        .set(|settings| settings.limits.write_timeout = Duration::from_millis(300))
        .on(&backend.reopened().await)
        .await;
    Servers { hasty, patient, _backend: backend }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_clients_that_never_read_an_ended_run_are_cut() {
    let Servers { hasty: server, patient, _backend } = servers_with_long_run().await;
    let mut stalled = Vec::new();
    for _ in 0..30 {
        let request = format!("GET /runs/r/stream HTTP/1.1\r\nhost: {}\r\n\r\n", server.address());
        stalled.push(server.raw(request).await);
    }
    let cut = async || server.metric("agentwire_readers_cut").await;
    wait_until("all are cut", async || cut().await == 30).await;
    for mut stream in stalled {
        let mut seen = Vec::new();
        let _ = with_timeout("the end", stream.read_to_end(&mut seen)).await;
        assert!(seen.len() < EVENTS * EVENT / 2, "{}", seen.len());
    }
    assert_valid(&patient.follow("/runs/r/stream").await.rest().await);
    assert_eq!(patient.metric("agentwire_readers_cut").await, 0);
}

/// A whole response is cut as well as a stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_clients_that_never_read_a_snapshot_are_cut() {
    let Servers { hasty: server, patient, _backend } = servers_with_long_run().await;
    let before = server.metric("agentwire_connections").await;
    let mut stalled = Vec::new();
    for _ in 0..5 {
        let request = format!("GET /message_snapshot/t HTTP/1.1\r\nhost: {}\r\n\r\n", server.address());
        stalled.push(server.raw(request).await);
    }
    for stream in &mut stalled {
        let mut head = [0; 15];
        stream.read_exact(&mut head).await.expect("a head");
        assert_eq!(&head, b"HTTP/1.1 200 OK");
    }
    wait_until("they are cut", async || server.metric("agentwire_connections").await <= before).await;
    let (status, whole) = patient.json("/message_snapshot/t").await;
    assert_eq!(status, 200);
    assert_eq!(whole["messages"][1]["content"].as_str().map(str::len), Some(EVENTS * EVENT));
}

/// A stream can be full while its connection is not: only the stream is reset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_an_unread_http2_stream_is_reset_alone() {
    let Servers { hasty: server, patient: _, _backend } = servers_with_long_run().await;
    let socket = tokio::net::TcpStream::connect(server.address()).await.expect("a connection");
    let (mut client, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(64 << 10)
        .initial_connection_window_size(16 << 20)
        .handshake(TokioIo::new(socket))
        .await
        .expect("HTTP/2");
    let connection = tokio::spawn(connection);
    for path in ["/runs/r/stream", "/message_snapshot/t"] {
        let ask = |path: &str| {
            hyper::Request::get(format!("{}{path}", server.base))
                .body(Empty::<bytes::Bytes>::new())
                .expect("a request")
        };
        let mut unread = client.send_request(ask(path)).await.expect("a response").into_body();
        // The first bytes, and then nothing for longer than the timeout.
        unread.frame().await.expect("a frame").expect("data");
        tokio::time::sleep(Duration::from_millis(900)).await;
        let rest = with_timeout("the reset", unread.collect()).await;
        assert!(rest.is_err(), "{path}: a clean end would look like the end of the run");
        let live = client.send_request(ask("/livez")).await.expect("the connection is open");
        assert_eq!(live.status(), 200);
    }
    connection.abort();
}

/// An idle stream waits for nothing, so that no timeout applies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_streams_are_not_cut() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone())
        .set(|settings| settings.limits.write_timeout = Duration::from_millis(50))
        .on_memory()
        .await;
    let mut stream = server.run("t", "r", "hello").await;
    stream.take(1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    puppet.allow(100);
    stream.rest().await;
    assert!(!stream.broken);
    assert_eq!(server.ask(Method::GET, "/livez").send().await.expect("a response").status(), 200);
}
