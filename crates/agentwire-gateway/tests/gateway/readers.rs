//! Readers that disconnect, stall or wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agentwire_gateway::{agent::EventSink, settings::OnDisconnect};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Semaphore,
};

use crate::support::*;

#[tokio::test]
async fn a_run_continues_when_its_reader_disconnects() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 10));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let mut first = server.run("t", "r", "hello").await;
        puppet.allow(3);
        let seen = first.take(4).await;
        drop(first);
        puppet.allow(100);
        wait_until("the run has ended", async || server.status("r").await == "finished").await;
        let whole = server.follow("/runs/r/stream").await.rest().await;
        assert_valid(&whole);
        assert_eq!(whole[..4], seen);
        assert_eq!((puppet.calls(), puppet.dropped()), (1, 0));
    }
}

#[tokio::test]
async fn on_disconnect_cancel_stops_a_run_with_its_last_reader() {
    let puppet = Puppet::new(|input| talk(input, 10));
    let server =
        plan(puppet.clone()).agent(|agent| agent.on_disconnect = OnDisconnect::Cancel).on_memory().await;
    let mut first = server.run("t", "r", "hello").await;
    let mut second = server.follow("/runs/r/stream").await;
    puppet.allow(3);
    first.take(4).await;
    second.take(4).await;
    drop(first);
    puppet.allow(1);
    second.take(1).await;
    assert_eq!(server.status("r").await, "running", "one reader is left");
    drop(second);
    // The agent is silent, so the gateway can only have noticed the closed connection.
    wait_until("the run has ended", async || server.status("r").await == "stopped").await;
    assert_eq!(puppet.dropped(), 1);
    let whole = server.follow("/runs/r/stream").await.rest().await;
    assert_valid(&whole);
    assert_eq!(whole.last().expect("a last frame").json()["outcome"]["type"], "cancelled");
}

/// One reader stalls: it is cut and can reconnect without loss; fifty others are not interrupted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_a_stalled_reader_is_cut_and_fifty_others_continue() {
    const READERS: usize = 50;
    // Far more than the system buffers for a connection.
    const MOST: u64 = 2000;
    let (permits, enough) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicBool::new(false)));
    let shared = (permits.clone(), enough.clone());
    let agent = play(move |_, sink: EventSink| {
        let (permits, enough) = shared.clone();
        async move {
            sink.send(start("m")).await?;
            while !enough.load(Ordering::SeqCst) {
                permits.acquire().await.expect("it is never closed").forget();
                sink.send(delta("m", &"x".repeat(50 << 10))).await?;
            }
            sink.send(end("m")).await?;
            Ok(())
        }
    });
    let server = plan(agent).set(|settings| settings.limits.reader_lag = 512 << 10).on_memory().await;
    let mut first = server.run("t", "r", "hello").await;
    first.take(2).await;

    // A reader that reads the response head and nothing more.
    let address = server.base.strip_prefix("http://").expect("it has one");
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let mut stalled = socket.connect(address.parse().expect("an address")).await.expect("a connection");
    stalled
        .write_all(format!("GET /runs/r/stream HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())
        .await
        .expect("sent");
    let mut head = [0; 15];
    stalled.read_exact(&mut head).await.expect("a head");
    assert_eq!(&head, b"HTTP/1.1 200 OK");

    let (received, mut readers) = (Arc::new(Semaphore::new(0)), tokio::task::JoinSet::new());
    for _ in 0..READERS {
        let (mut stream, received) = (server.follow("/runs/r/stream").await, received.clone());
        readers.spawn(async move {
            let mut count = 0;
            while let Some(frame) = stream.next().await {
                assert_eq!(frame.id.as_deref(), Some(format!("r:{count}").as_str()));
                count += 1;
                received.add_permits(1);
            }
            assert!(!stream.broken);
            count
        });
    }
    // The other readers receive each event before the next one is emitted, so that only the stalled one lags.
    let all = u32::try_from(READERS).expect("it fits");
    let caught_up = async |events: u32| {
        with_timeout("all readers", received.acquire_many(events * all)).await.expect("open").forget()
    };
    caught_up(2).await;
    let mut events = 0;
    while server.metric("agentwire_readers_cut").await == 0 {
        assert!(events < MOST, "it is never cut");
        events += 1;
        permits.add_permits(1);
        first.take(1).await;
        caught_up(1).await;
        // Once it lags, it is cut after a while without further events.
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    enough.store(true, Ordering::SeqCst);
    permits.add_permits(1);
    first.rest().await;
    let counts = with_timeout("fifty readers", readers.join_all()).await;
    // The counted events, one more, and the start and end of the run and its message.
    assert!(counts.iter().all(|count| *count == events + 5), "{counts:?}");
    assert_eq!(server.metric("agentwire_readers_cut").await, 1);
    // It can still read the bytes in the system's buffers; then the connection is closed.
    let mut rest = Vec::new();
    let _ = with_timeout("the end of the stalled stream", stalled.read_to_end(&mut rest)).await;
    let text = String::from_utf8_lossy(&rest);
    let last = text
        .rmatch_indices("\nid: ")
        .find_map(|(at, _)| text[at + 5..].split_once('\n'))
        .expect("some events")
        .0
        .to_owned();
    assert_ne!(last, format!("r:{}", events + 4), "it was cut before the end");
    let mut back = server.follow(&format!("/runs/r/stream?after={last}")).await;
    assert_eq!(back.verdict(), "whole");
    let seen: u64 = last[2..].parse().expect("a number");
    assert_eq!(back.rest().await.len() as u64, events + 4 - seen);
}

/// On HTTP/2 readers share a connection: one stream is reset, and the connection stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_a_stalled_http2_stream_is_cut_alone() {
    use http_body_util::{BodyExt, Empty};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let puppet = Puppet::new(|_| {
        let mut events = vec![start("m")];
        events.extend((0..1000).map(|_| delta("m", &"x".repeat(50 << 10))));
        events
    });
    let server =
        plan(puppet.clone()).set(|settings| settings.limits.reader_lag = 512 << 10).on_memory().await;
    let mut first = server.run("t", "r", "hello").await;
    first.take(1).await;

    let address = server.base.strip_prefix("http://").expect("it has one");
    let socket = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let (mut client, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(64 << 10)
        .handshake(TokioIo::new(socket))
        .await
        .expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let follow = |path: &str| {
        let uri = format!("{}{path}", server.base);
        hyper::Request::get(uri).body(Empty::<bytes::Bytes>::new()).expect("a request")
    };
    let stalled = client.send_request(follow("/runs/r/stream")).await.expect("a response");
    let (quick, mut shown) = tokio::sync::mpsc::unbounded_channel();
    let mut reader = client.send_request(follow("/runs/r/stream")).await.expect("a response").into_body();
    tokio::spawn(async move {
        while let Some(Ok(frame)) = reader.frame().await {
            let _ = quick.send(frame.into_data().unwrap_or_default().len());
        }
    });
    // Until the stalled stream is cut; the other one receives every event meanwhile.
    with_timeout("the cut", async {
        loop {
            puppet.allow(1);
            first.take(1).await;
            let (_, metrics) = server.json("/metrics").await;
            if metrics.as_str().expect("text").contains("agentwire_readers_cut_total 1") {
                return;
            }
            // The run must last longer than a reader may stall.
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    })
    .await;
    let cut = with_timeout("the end of the stalled stream", stalled.into_body().collect()).await;
    assert!(cut.is_err(), "a clean end would look like the end of the run");
    while shown.try_recv().is_ok() {}
    puppet.allow(1);
    assert!(with_timeout("the next event of the other stream", shown.recv()).await.is_some());
    let live = client.send_request(follow("/livez")).await.expect("an open connection");
    assert_eq!(live.status(), 200);
    connection.abort();
}

#[tokio::test]
async fn an_idle_stream_gets_comments() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server =
        plan(puppet.clone()).set(|settings| settings.heartbeat = Duration::from_millis(20)).on_memory().await;
    let mut first = server.run("t", "r", "hello").await;
    let mut seen = first.take(1).await;
    for format in ["ag-ui", "hai", "ai-sdk@5"] {
        let mut stream = server.follow(&format!("/runs/r/stream?format={format}")).await;
        stream.aside().await;
        assert!(
            stream.asides.iter().any(|aside| aside.starts_with(": ping")),
            "{format}: {:?}",
            stream.asides
        );
    }
    puppet.allow(100);
    seen.extend(first.rest().await);
    assert_valid(&seen);
}

#[tokio::test]
async fn an_idle_stream_of_a_queued_run_gets_comments() {
    let puppet = Puppet::new(|input| talk(input, 3));
    let server = plan(puppet.clone())
        .set(|settings| settings.heartbeat = Duration::from_millis(20))
        .agent(|agent| agent.busy = agentwire_gateway::settings::Busy::Enqueue { limit: 2 })
        .on_memory()
        .await;
    let server = Arc::new(server);
    let mut one = server.run("t", "one", "hello").await;
    one.take(1).await;
    let mut two = server.run("t", "two", "hello").await;
    two.aside().await;
    puppet.allow(100);
    assert_valid(&two.rest().await);
}
